"""Estimate of the memory of a program's variables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fluid.contrib.arguments import expect_program
from fluid.framework import Program, Variable
from fluid.recording.var_types import VarDesc

__all__ = ["memory_usage"]

LOW, HIGH = 1.05, 1.1
"""Bounds of the estimate relative to the sum of the variables' sizes."""


def memory_usage(program: Program, batch_size: int) -> tuple[float, float, str]:
    """Return the minimum and maximum memory of all op outputs, and the unit: B, KB or MB.

    Sums all outputs without memory sharing; `Executor.explain` reports the actual memory of a step.
    Raises TypeError for anything but a Program, ValueError for a batch size that is not positive
    and for a variable with two dynamic sizes.
    """
    expect_program(program, "memory_usage")
    if batch_size <= 0:
        raise ValueError(f"the batch size must be positive, not {batch_size}")
    block = program.global_block()
    names = dict.fromkeys(name for op in block.ops for name in op.output_arg_names)
    written = [block.var(name) for name in names if name in block.vars]
    tensors = [var for var in written if var.type == VarDesc.VarType.LOD_TENSOR]
    return _scaled(sum(_nbytes(var, batch_size) for var in tensors))


def _nbytes(var: Variable, batch_size: int) -> int:
    return _elements(var.name, var.shape, batch_size) * var.element.itemsize


def _elements(name: str, shape: Sequence[int], batch_size: int) -> int:
    if sum(size < 0 for size in shape) > 1:
        raise ValueError(f"variable {name!r} has more than one unknown size: {tuple(shape)}")
    return prod(size if size >= 0 else -size * batch_size for size in shape)


def _scaled(nbytes: float) -> tuple[float, float, str]:
    for unit in ("B", "KB"):
        if nbytes <= 1024:
            return nbytes * LOW, nbytes * HIGH, unit
        nbytes /= 1024
    return nbytes * LOW, nbytes * HIGH, "MB"
