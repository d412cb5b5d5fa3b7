"""What jaxdyn costs beside other libraries: `python -m tests.benchmarks --help`."""
