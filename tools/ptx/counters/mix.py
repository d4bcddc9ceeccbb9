"""Classes of PTX instructions."""

from __future__ import annotations

from tools.ptx.instructions import Instruction

_CLASSES = {
    "tensor cores": ("mma", "wgmma"),
    "shared memory": ("ldmatrix", "stmatrix"),
    "warp": ("shfl", "vote", "redux", "activemask", "match", "elect"),
    "control": ("bra", "bar", "barrier", "ret", "exit", "trap", "fence", "membar", "mbarrier"),
    "special functions": ("ex2", "lg2", "sin", "cos", "rcp", "sqrt", "rsqrt", "tanh"),
    "conversion": ("cvt", "cvta"),
    "move": ("mov", "selp", "prmt"),
}
_BY_OPCODE = {opcode: name for name, opcodes in _CLASSES.items() for opcode in opcodes}
_MEMORY = ("ld", "st", "atom", "red", "cp")
_FLOATS = ("f16", "bf16", "f16x2", "bf16x2", "f32", "f64")


def class_of(instruction: Instruction) -> str:
    """The class of an instruction.

    Besides those of `_CLASSES`: float, integer, global memory, other memory (local, parameters).
    """
    if instruction.opcode in _MEMORY:
        return _memory_class(instruction)
    if class_name := _BY_OPCODE.get(instruction.opcode):
        return class_name
    return "float" if any(modifier in _FLOATS for modifier in instruction.modifiers) else "integer"


def _memory_class(instruction: Instruction) -> str:
    if instruction.opcode == "cp" or instruction.has("global"):
        return "global memory"
    if instruction.has("shared") or instruction.has("shared::cta"):
        return "shared memory"
    return "other memory"
