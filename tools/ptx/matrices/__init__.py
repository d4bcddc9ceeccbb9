"""Products of matrices on tensor cores."""
