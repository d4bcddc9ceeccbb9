"""`QuantizeTranspiler`: quantization of programs, older than the passes over graphs."""

from fluid.contrib.quantize.quantize_transpiler import QuantizeTranspiler

__all__ = ["QuantizeTranspiler"]
