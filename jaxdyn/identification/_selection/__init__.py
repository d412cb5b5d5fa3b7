"""Selection of torque terms from a log: candidates, cross-validated errors, and search."""
