"""`ProgramTranslator`, see `fluid.dygraph.jit`."""

from fluid.dygraph.jit import ProgramTranslator

__all__ = ["ProgramTranslator"]
