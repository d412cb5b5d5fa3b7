"""Linear-quadratic problems and the Riccati recursion."""
