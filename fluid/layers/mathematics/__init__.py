"""Layers for elementwise math, linear algebra, reductions, indexing and shape changes."""
