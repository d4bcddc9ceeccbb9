"""`convert_call`, where release 1.8.5 has it."""

from fluid.dygraph.dygraph_to_static.operators import convert_call

__all__ = ["convert_call"]
