"""Mutation check of the tests: `python -m tests.mutation --help`."""
