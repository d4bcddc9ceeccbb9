"""GPU memory through torch, drivers and launches of compiled kernels."""
