"""Result files: all files of an identification, tables of its parameters and errors, and payloads and gains as JSON."""
