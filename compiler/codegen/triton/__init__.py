"""The Triton target: lowers a plan to a module of `@triton.jit` kernels and launches."""
