"""Arithmetic ops: pointwise, reductions along axes, matrix products."""
