"""Chooses which reductions are split into parts on a GPU, and into how many.

One program reducing a million numbers would use one multiprocessor of a hundred.
"""

from __future__ import annotations

from compiler.codegen.kernel.analysis import loop_dependencies, reduction_levels, store_roots
from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.kernel.split_reductions import Scratch, Split, split_by
from compiler.codegen.triton.tiling.schedules import (
    TARGET_PROGRAMS,
    choose_schedule,
    computes_moments,
    loop_tile,
    size_hint,
    strided_elements,
)
from compiler.ir.dims import product
from compiler.support.thresholds import threshold

TARGET_PARTS = threshold(
    "split_programs", 2112, "programs", "a split reduction has at most so many", small=8
)
UNSPLIT_ELEMENTS = threshold(
    "unsplit_elements", 16384, "elements of a program and level",
    "reductions of more are split into parts, if there are few programs", small=24,
)  # fmt: skip


def split_kernel(kernel: KernelBody, scratch: Scratch) -> list[KernelBody]:
    """Split a kernel with long reductions and few elements into several, in launch order."""
    split = _choose_split(kernel)
    return [kernel] if split is None else split_by(kernel, split, scratch)


def _choose_split(kernel: KernelBody) -> Split | None:
    """Choose the parts; None if one kernel suffices.

    Sums of columns have parts although there are many columns, so that a program reads whole lines
    of memory: for 16384 rows of 4096 columns, an H200 took 0.063 ms with 64 columns and 16 parts,
    0.151 with 16 columns and one.
    """
    count = product(kernel.shape)
    levels = reduction_levels(kernel.stores)
    if len(kernel.loops) != 1 or kernel.ends or not levels or not isinstance(count, int):
        return None
    schedule, size = choose_schedule(kernel), kernel.loops[0]
    elements, most, target = schedule.elements, TARGET_PROGRAMS.value // 2, TARGET_PARTS.value
    if schedule.across and len(levels) == 1 and not _stores_iterations(kernel):
        elements, most = max(elements, strided_elements(kernel)), target // 4
        target //= 1 if computes_moments(kernel) else 2
    programs, iterations = max(1, -(-count // elements)), size_hint(size)
    work = min(count, schedule.elements) * iterations
    if programs > most or work <= UNSPLIT_ELEMENTS.value * len(levels):
        return None
    step = loop_tile(schedule.across)
    parts = min(target // programs, -(-iterations // (2 * step)))
    part = -(-size // (parts * step)) * step
    if isinstance(size, int) and isinstance(part, int):
        parts = -(-size // part)
    return Split(parts, part, schedule.across)


def _stores_iterations(kernel: KernelBody) -> bool:
    """True if a store is executed for every iteration, which reads the operands again."""
    loop_deps = loop_dependencies(kernel)
    return any(loop_deps[root] for root in store_roots(kernel.stores))
