"""Extensions of a chain: closed loops, elastic joints and moving bases."""
