"""URDF documents as chains, and chains as URDF documents."""
