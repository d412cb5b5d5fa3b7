"""Additions to a chain: closed loops, elastic joints and moving bases."""
