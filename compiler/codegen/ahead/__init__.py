"""Ahead-of-time compilation of kernels to machine code, for GPUs that need not be present."""
