"""Passes that group ops into kernels."""
