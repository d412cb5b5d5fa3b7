"""Convert MJCF files and compiled MuJoCo models to chains, and chains to MJCF files."""
