"""Ops of quantized models: floats rounded to a few levels, and back.

`levels` has the arithmetic, for the host and for kernels; `fake` quantizes by the maximum of its
input, `window` and `moving` by one that training tracks; `dequantize` maps levels back to floats;
`integers` has the ops of 8 bits.
"""
