"""Compression of models, of which quantization is here: `quantization`."""

from fluid.contrib.slim import quantization

__all__ = ["quantization"]
