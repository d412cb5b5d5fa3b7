"""Benchmarks of jaxdyn against other libraries: `python -m tests.benchmarks --help`."""
