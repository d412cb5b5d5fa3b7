"""Sections of the report, one file each, which convert results to HTML."""
