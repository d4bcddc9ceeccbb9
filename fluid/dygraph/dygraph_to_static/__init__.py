"""Functions for eager mode as parts of programs: branches and loops on tensors become ops.

`program_translator` has `ProgramTranslator`. A function's syntax tree (`function_sources`) is
rewritten (`ast_transformer`, with `exits` for `break`, `continue` and `return`, and `names` for
what statements write and read) and compiled (`conversion`). What the rewritten function calls
decides, by the values that it gets, between Python and ops: `operators`, and `branches` and `loops`
on `values`, which record blocks (`recorded_blocks`) and take them back (`program_states`).
"""

from fluid.dygraph.dygraph_to_static import convert_call_func, program_translator
from fluid.dygraph.dygraph_to_static.operators import convert_call
from fluid.dygraph.dygraph_to_static.program_translator import (
    ProgramTranslator,
    convert_function_with_cache,
    convert_to_static,
)

__all__ = [
    "ProgramTranslator", "convert_call", "convert_call_func", "convert_function_with_cache",
    "convert_to_static", "program_translator",
]  # fmt: skip
