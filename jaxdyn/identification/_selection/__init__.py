"""Selection of model terms from a log: candidates, cross-validated errors, and search."""
