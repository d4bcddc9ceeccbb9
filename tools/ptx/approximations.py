"""Approximate instructions with the errors that NVIDIA allows them.

The machine computes approximate instructions exactly. `perturbed` changes their results by up to
the largest error that the PTX documentation states, by a fraction of it that follows from the bits
of the result: what a GPU computes lies within that distance too. Only float32 is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from compiler.ir.types import Array
from tools.ptx.flow import Block
from tools.ptx.group import Group, Mask
from tools.ptx.instructions import Instruction
from tools.ptx.machine import Program
from tools.ptx.values import Step, guarded, reader, writer

Bound = Callable[[Array], Array]
"""The largest absolute error of results, float64."""


def _relative(exponent: float) -> Bound:
    return lambda result: np.abs(result) * 2.0**exponent


def _logarithm(result: Array) -> Array:
    """2^-22 for arguments from 0.5 to 2, whose results are at most 1, and relative beyond."""
    return np.maximum(np.abs(result), 1.0) * 2.0**-22


def _wave(result: Array) -> Array:
    """Of arguments within ±2π; the documented error of larger ones grows."""
    return np.full_like(result, 2.0**-20.5)


BOUNDS: dict[str, Bound] = {
    "ex2": _relative(-22),
    "lg2": _logarithm,
    "rcp": _relative(-23),
    "sqrt": _relative(-23),
    "rsqrt": _relative(-22.9),
    "div": _relative(-22),
    "tanh": _relative(-11),
    "sin": _wave,
    "cos": _wave,
}
"""By opcode; PTX ISA, floating point instructions."""


def perturbed(program: Program) -> Program:
    """The program with errors in the results of approximate instructions."""
    pairs = zip(program.blocks, program.steps, strict=True)
    return replace(program, steps=tuple(_block(block, steps) for block, steps in pairs))


def _block(block: Block, steps: Sequence[Step]) -> tuple[Step, ...]:
    pairs = zip(block.instructions, steps, strict=True)
    return tuple(
        _followed(instruction, step) if _is_approximate(instruction) else step
        for instruction, step in pairs
    )


def _is_approximate(instruction: Instruction) -> bool:
    approximate = instruction.has("approx") or instruction.has("full")
    return approximate and instruction.opcode in BOUNDS and instruction.type == "f32"


def _followed(instruction: Instruction, step: Step) -> Step:
    """The step of an instruction, and the change of what it wrote."""
    read, write = reader(instruction.operands[0], "f4"), writer(instruction.operands[0])
    bound = BOUNDS[instruction.opcode]

    def change(group: Group, mask: Mask) -> None:
        write(group, mask, changed(np.asarray(read(group)), bound)[()])

    after = guarded(change, instruction)

    def run(group: Group, mask: Mask) -> None:
        step(group, mask)
        after(group, mask)

    return run


def changed(result: Array, bound: Bound) -> Array:
    """Results, float32, changed within a bound; zeros, infinities and NaN stay."""
    wide = result.astype("f8")
    bits = result.view("u4").astype("u8")
    share = (bits * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)) / 2.0**31 - 1.0
    is_unchanged = (wide == 0) | ~np.isfinite(wide)
    return np.where(is_unchanged, wide, wide + share * bound(wide)).astype("f4")
