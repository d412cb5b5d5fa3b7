"""Convert URDF documents to chains, and chains to URDF documents."""
