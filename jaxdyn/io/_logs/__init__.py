"""Logged runs as tables: files, columns, units and unusable rows."""
