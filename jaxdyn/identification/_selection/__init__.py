"""Which terms a log calls for: candidates, what they take off the error on blocks left out, and the choice among them."""
