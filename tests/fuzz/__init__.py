"""Fuzzer of everything that reads a file: `python -m tests.fuzz --help`."""
