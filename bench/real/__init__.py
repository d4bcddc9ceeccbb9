"""Models and texts that others published."""
