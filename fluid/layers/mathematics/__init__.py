"""Elementwise, linear algebra, reductions, indexing and shapes."""
