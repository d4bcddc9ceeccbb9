"""Kernels over many tensors (horizontal fusion) and reductions of whole tensors."""
