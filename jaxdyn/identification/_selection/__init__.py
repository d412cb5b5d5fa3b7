"""Selection of torque terms by cross-validation: candidates, errors on left-out blocks, and search."""
