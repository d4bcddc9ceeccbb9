"""Attention in half precision as Triton kernels without scores in memory, and its gradients."""
