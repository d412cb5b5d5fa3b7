"""MJCF files and compiled MuJoCo models as chains, and chains as MJCF files."""
