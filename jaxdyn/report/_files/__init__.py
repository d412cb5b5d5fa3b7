"""Results as files: all of an identification, its parameters as a table, payloads and gains as JSON."""
