"""Kernels as machine code, made ahead of time for GPUs that need not be here."""
