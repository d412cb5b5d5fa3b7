"""Sections of the report as HTML, in one file each."""
