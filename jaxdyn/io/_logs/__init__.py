"""Read logged runs as tables: files, columns, units and unusable rows."""
