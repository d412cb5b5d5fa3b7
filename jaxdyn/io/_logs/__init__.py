"""Logged runs as tables: their files, columns, units and rows that cannot be used."""
