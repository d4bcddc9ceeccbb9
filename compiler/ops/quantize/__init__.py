"""Ops of quantized models: floats rounded to levels, and back.

`levels` has the arithmetic, for the host and for kernels; `fake` quantizes by the maximum of its
input, `window` and `moving` by one tracked in training; `dequantize` maps levels back to floats;
`integers` has the 8-bit ops of oneDNN, `products` those that the compiler makes of frozen models.
"""
