"""Which step executes which instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tools.ptx import arithmetic, convert, float_steps, warps
from tools.ptx.access import copy_async, load, store
from tools.ptx.atomics import atomic
from tools.ptx.errors import PtxError, PtxSyntaxError, unsupported
from tools.ptx.group import GENERIC
from tools.ptx.instructions import Instruction
from tools.ptx.matrices.doubles import multiply_doubles
from tools.ptx.matrices.tensor_cores import multiply
from tools.ptx.matrices.warpgroups import warpgroup
from tools.ptx.values import Step, guarded, reader, writer

Build = Callable[[Instruction], Step]

_HALVES_TOO = (
    "add", "sub", "mul", "fma", "min", "max", "abs", "neg", "ex2", "tanh",
)  # fmt: skip
_FLOAT_ONLY = ("fma", "rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "copysign", "ex2", "tanh")
_INTEGER = ("add", "sub", "min", "max", "div", "rem", "abs", "neg")
_FIXED: Mapping[str, Build] = {
    "mul": arithmetic.product, "mad": arithmetic.product,
    "and": arithmetic.logic, "or": arithmetic.logic, "xor": arithmetic.logic,
    "not": arithmetic.logic, "cnot": arithmetic.logic, "shl": arithmetic.shift,
    "shr": arithmetic.shift, "shf": arithmetic.funnel, "bfe": arithmetic.field,
    "bfi": arithmetic.field, "popc": arithmetic.counted, "clz": arithmetic.counted,
    "brev": arithmetic.counted, "bfind": arithmetic.counted, "prmt": arithmetic.permute,
    "lop3": arithmetic.logic3, "addc": arithmetic.with_carry, "subc": arithmetic.with_carry,
    "madc": arithmetic.with_carry, "dp4a": arithmetic.byte_products, "setp": convert.compare,
    "selp": convert.select, "mov": convert.move, "cvt": convert.convert, "ld": load, "st": store,
    "atom": atomic, "red": atomic, "shfl": warps.shuffle, "vote": warps.vote,
    "redux": warps.reduce, "activemask": warps.active_mask, "ldmatrix": warps.matrix_memory,
    "stmatrix": warps.matrix_memory, "mma": multiply, "wgmma": warpgroup,
}  # fmt: skip
_ORDER_ONLY = {
    "membar": {"cta", "gl", "sys"},
    "fence": {"acq_rel", "sc", "cta", "gpu", "sys", "proxy", "async", "shared::cta", "global"},
    "griddepcontrol": {"wait", "launch_dependents"},
    "prefetch": {"global", "L1", "L2", "local"},
    "nanosleep": {"u32"},
    "discard": {"global", "L2"},
    "applypriority": {"global", "L2::evict_normal"},
}
"""Instructions that change no value here, and their modifiers."""


def step_of(instruction: Instruction) -> Step:
    """The step of an instruction that ends no block.

    Raises UnsupportedInstruction naming what the machine does not execute.
    """
    try:
        return guarded(_build(instruction)(instruction), instruction)
    except PtxSyntaxError as error:
        raise PtxSyntaxError(
            f"PTX line {instruction.line}: {error.message}", op=instruction.text
        ) from error
    except PtxError:
        raise
    except (IndexError, ValueError, KeyError) as error:
        raise unsupported(instruction, "its operands or modifiers") from error


def _build(instruction: Instruction) -> Build:
    name, kind = instruction.opcode, instruction.type
    if instruction.has("cc"):
        return arithmetic.with_carry
    if name == "mma" and kind == "f64":
        return multiply_doubles
    if kind in float_steps.HALVES and name in _HALVES_TOO:
        return float_steps.half
    if kind in float_steps.SINGLE and (
        name in _FLOAT_ONLY or (name in (*_INTEGER, "mul", "mad") and name != "rem")
    ):
        return float_steps.single
    if kind in ("u16x2", "s16x2") and name in ("add", "min", "max"):
        return arithmetic.packed_sixteen
    if name in _INTEGER:
        return arithmetic.integer
    return _FIXED.get(name) or _other(instruction)


def _other(instruction: Instruction) -> Build:
    name = instruction.opcode
    if name == "cp":
        return copy_async
    if name in _ORDER_ONLY and {*instruction.modifiers} <= _ORDER_ONLY[name]:
        return lambda each: lambda group, mask: None
    if name == "cvta" and {*instruction.modifiers} <= {"to", *_GENERIC, "u64"}:
        return _generic
    if name == "createpolicy" and instruction.type == "b64":
        return _policy
    raise unsupported(instruction)


_GENERIC = {"global": 0, "const": 0, **GENERIC, "shared::cta": GENERIC["shared"]}


def _generic(instruction: Instruction) -> Step:
    """cvta: a generic address from one of a state space, or back."""
    (space,) = {*instruction.modifiers} - {"to", "u64"}
    start = np.uint64(_GENERIC[space])
    move = np.subtract if instruction.has("to") else np.add
    write, read = writer(instruction.operands[0]), reader(instruction.operands[1], "u8")
    return lambda group, mask: write(group, mask, move(read(group), start))


def _policy(instruction: Instruction) -> Step:
    """createpolicy: hints for caches, of which there are none."""
    write = writer(instruction.operands[0])
    for operand in instruction.operands[1:]:
        reader(operand, "f4" if len(instruction.operands) == 2 else "u8")
    return lambda group, mask: write(group, mask, np.uint64(0))
