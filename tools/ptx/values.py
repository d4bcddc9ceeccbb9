"""How steps read operands and write registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tools.ptx.errors import PtxSyntaxError, UnsupportedInstruction
from tools.ptx.group import Group, Mask, Value, choose
from tools.ptx.instructions import Immediate, Instruction, Not, Operand, Register, Special, Symbol

Read = Callable[[Group], Value]
Write = Callable[[Group, Mask, Value], None]
Step = Callable[[Group, Mask], None]

Unary = Callable[[Value], Value]
Binary = Callable[[Value, Value], Value]
Ternary = Callable[[Value, Value, Value], Value]
Quaternary = Callable[[Value, Value, Value, Value], Value]
Function = Unary | Binary | Ternary | Quaternary
"""A function of one to four values."""
Call = Callable[..., Any]


def called(function: Function) -> Call:
    """The same function, to be called with as many values as it takes."""
    return function


DTYPES = {
    "f32": "f4", "f64": "f8", "f16": "f2", "u8": "u1", "s8": "i1", "u16": "u2", "s16": "i2",
    "u32": "u4", "s32": "i4", "u64": "u8", "s64": "i8", "b8": "u1", "b16": "u2", "b32": "u4",
    "b64": "u8", "bf16": "u2", "f16x2": "u4", "bf16x2": "u4", "tf32": "u4", "pred": "?",
    "u16x2": "u4", "s16x2": "u4",
}  # fmt: skip
"""The NumPy type of each PTX type; halves in pairs and bfloat16 are read as bits."""


def reader(operand: Operand | None, kind: str) -> Read:
    """A function that reads an operand as a NumPy type. Raises PtxSyntaxError if it cannot be."""
    if isinstance(operand, Register):
        return _register(operand, kind)
    if isinstance(operand, Not):
        return _inverted(operand.register)
    if isinstance(operand, Immediate):
        return _constant(operand, kind)
    if isinstance(operand, Special):
        return _special(operand.name, kind)
    if isinstance(operand, Symbol):
        return _symbol(operand.name, kind)
    raise PtxSyntaxError(f"{operand} is not a value")


def writer(operand: Operand | None) -> Write:
    """A function that writes lanes of a register; `_` takes nothing.

    An integer of fewer bytes than the register is extended by its sign, if it has one.
    """
    if operand is None:
        return lambda group, mask, value: None
    if not isinstance(operand, Register):
        raise PtxSyntaxError(f"{operand} cannot be written")
    slot, width = operand.slot, operand.width

    def write(group: Group, mask: Mask, value: Value) -> None:
        bits = _bits(value, width)
        if mask is not None:
            bits = choose(mask, bits, group.registers[slot])
        group.registers[slot] = bits

    return write


def _bits(value: Value, width: int) -> Value:
    """A value as a register holds it: a boolean, or an unsigned integer."""
    if width == 0:
        return value if value.dtype == bool else value != 0
    if value.dtype.kind == "f":
        value = value.view(f"u{value.dtype.itemsize}")
    if value.dtype.itemsize != width:
        value = value.astype(f"{'i' if value.dtype.kind == 'i' else 'u'}{width}")
    return value.view(f"u{width}")


def _register(register: Register, kind: str) -> Read:
    slot, size = register.slot, np.dtype(kind).itemsize
    if (register.width == 0) != (kind == "?"):
        raise PtxSyntaxError(f"{register.name} is read as {kind}")
    if register.width == size or kind == "?":
        own = kind[0] == "u" or kind == "?"
        return (lambda g: g.registers[slot]) if own else (lambda g: g.registers[slot].view(kind))
    if register.width < size:
        raise PtxSyntaxError(f"{register.name} has {register.width} bytes, {size} are read")
    return lambda g: g.registers[slot].astype(f"u{size}").view(kind)


def _inverted(register: Register) -> Read:
    if register.width:
        raise PtxSyntaxError(f"{register.name} is not a predicate")
    slot = register.slot
    return lambda group: ~group.registers[slot]


def constant(operand: Immediate, kind: str) -> Value:
    """A constant as a NumPy scalar. Raises PtxSyntaxError for an integer where a float belongs."""
    if kind == "?":
        return np.bool_(operand.value != 0)
    size = np.dtype(kind).itemsize
    if operand.width and kind[0] == "f" and operand.width != size:
        return (
            np.array(operand.value, f"u{operand.width}").view(f"f{operand.width}").astype(kind)[()]
        )
    if kind[0] == "f" and not operand.width and operand.value:
        raise PtxSyntaxError(f"the integer {operand.value} is not a float")
    return np.array(operand.value % (1 << 8 * size), f"u{size}").view(kind)[()]


def _constant(operand: Immediate, kind: str) -> Read:
    value = constant(operand, kind)
    return lambda group: value


def _special(name: str, kind: str) -> Read:
    def read(group: Group) -> Value:
        if name not in group.special:
            raise UnsupportedInstruction(f"the register {name} is not provided")
        return group.special[name].astype(kind)

    return read


def _symbol(name: str, kind: str) -> Read:
    def read(group: Group) -> Value:
        return np.dtype(kind).type(address_of(group, name))

    return read


def address_of(group: Group, name: str) -> int:
    """The address of a variable. Raises PtxSyntaxError if there is none of this name."""
    for offsets in (group.offsets, group.local_offsets, group.memory.symbols):
        if name in offsets:
            return offsets[name]
    raise PtxSyntaxError(f"there is no variable {name}")


def guarded(step: Step, instruction: Instruction) -> Step:
    """A step for the lanes of an instruction's guard only."""
    if instruction.guard is None:
        return step
    holds = reader(instruction.guard, "?")

    def run(group: Group, mask: Mask) -> None:
        wanted = both(mask, holds(group), group)
        if wanted is None or wanted.any():
            step(group, wanted)

    return run


def both(mask: Mask, holds: Value, group: Group) -> Mask:
    """The lanes of a mask where a predicate holds; None if all lanes."""
    if holds.ndim == 0:
        return mask if holds else np.zeros(group.lanes, bool)
    wanted = holds if mask is None else holds & mask
    return None if mask is None and wanted.all() else wanted
