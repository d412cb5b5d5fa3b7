"""Commercial robots, textbook robots, and their building blocks."""
