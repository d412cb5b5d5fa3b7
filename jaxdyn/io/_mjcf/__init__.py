"""Conversion of MJCF files and compiled MuJoCo models to chains, and of chains to MJCF files."""
