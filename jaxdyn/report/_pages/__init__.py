"""Complete HTML pages: the report of an identification, and the comparison of two models."""
