"""Choice of model terms from a log: candidates, their cross-validated errors, and the search."""
