"""Result files: all files of an identification, its parameters and errors as tables, payloads and gains as JSON."""
