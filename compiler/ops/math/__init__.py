"""Ops of arithmetic: element by element, along axes, products of matrices."""
