"""`ProgramTranslator`, where release 1.8.5 has it; no Python is rewritten (`fluid.dygraph.jit`)."""

from fluid.dygraph.dygraph_to_static import program_translator
from fluid.dygraph.jit import ProgramTranslator

__all__ = ["ProgramTranslator", "program_translator"]
