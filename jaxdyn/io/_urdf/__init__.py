"""Conversion of URDF documents to chains, and of chains to URDF documents."""
