"""What closed loops, elastic joints and moving bases add to a chain."""
