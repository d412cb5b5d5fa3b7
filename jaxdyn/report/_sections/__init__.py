"""Sections of the report, one per file: from results to HTML."""
