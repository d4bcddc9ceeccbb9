"""The Triton target: a plan as a readable module of `@triton.jit` kernels and the calls of them."""
