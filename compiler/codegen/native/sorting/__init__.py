"""Kernels that sort rows, or select the first values of them."""
