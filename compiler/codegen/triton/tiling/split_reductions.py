"""Chooses which reductions are split into parts on a GPU, and into how many.

One program reducing a million numbers would use one multiprocessor of a hundred.
"""

from __future__ import annotations

from compiler.codegen.kernel.analysis import reduction_levels
from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.kernel.split_reductions import Scratch, Split, split_by
from compiler.codegen.triton.tiling.schedules import (
    ELEMENTS,
    LOOP_TILE,
    TARGET_PROGRAMS,
    choose_schedule,
    size_hint,
)
from compiler.ir.dims import product

TARGET_PARTS = 16 * TARGET_PROGRAMS
"""Target number of programs of a split reduction."""

UNSPLIT_ELEMENTS = 4 * ELEMENTS
"""Reduced elements per program and level below which splitting does not pay."""


def split_kernel(kernel: KernelBody, scratch: Scratch) -> list[KernelBody]:
    """Split a kernel with long reductions and few elements into several, in launch order."""
    split = _choose_split(kernel)
    return [kernel] if split is None else split_by(kernel, split, scratch)


def _choose_split(kernel: KernelBody) -> Split | None:
    """Choose the parts; None if one kernel suffices."""
    count = product(kernel.shape)
    levels = reduction_levels(kernel.stores)
    if len(kernel.loops) != 1 or kernel.ends or not levels or not isinstance(count, int):
        return None
    schedule, size = choose_schedule(kernel), kernel.loops[0]
    programs, iterations = max(1, -(-count // schedule.elements)), size_hint(size)
    if 2 * programs > TARGET_PROGRAMS or min(
        count, schedule.elements
    ) * iterations <= UNSPLIT_ELEMENTS * len(levels):
        return None
    step = LOOP_TILE[schedule.across]
    parts = min(TARGET_PARTS // programs, -(-iterations // (2 * step)))
    part = -(-size // (parts * step)) * step
    if isinstance(size, int) and isinstance(part, int):
        parts = -(-size // part)
    return Split(parts, part, schedule.across)
