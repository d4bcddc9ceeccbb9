"""Chooses which reductions are split into parts for threads.

A long reduction with few results would be the work of one thread. The number of parts depends on
sizes alone, and they are combined in order, so that results are the same for any threads.
"""

from __future__ import annotations

from compiler.codegen.kernel.analysis import reduction_levels, store_roots
from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.kernel.split_reductions import Scratch, Split, split_by
from compiler.codegen.native.loops.body import Body
from compiler.codegen.native.loops.forms import PART_STEP, longest_axis, part_of
from compiler.codegen.native.loops.passes import hint
from compiler.codegen.trace import all_parts
from compiler.ir.dims import product
from compiler.support.thresholds import threshold

MAX_PARTS = threshold(
    "reduction_parts", 32, "parts", "a split reduction has no more parts", small=5
)
MIN_PART_WORK = threshold(
    "reduction_part_work", 32768, "iterations over all elements",
    "a reduction with twice as many is split into parts of at least so many", small=16,
)  # fmt: skip
SHARED_ELEMENTS = threshold(
    "reduction_elements", 1024, "elements",
    "a kernel has enough units without parts of its reductions", small=600,
)  # fmt: skip


def split_kernel(kernel: KernelBody, scratch: Scratch) -> list[KernelBody]:
    """Split a kernel with long reductions and few elements into several, in launch order."""
    split = _choose(kernel)
    return [kernel] if split is None else split_by(kernel, split, scratch)


def _choose(kernel: KernelBody) -> Split | None:
    """The parts of a kernel's reductions; None if they are not worth a second kernel."""
    count = product(kernel.shape)
    if len(kernel.loops) != 1 or kernel.ends or not isinstance(count, int):
        return None
    if not reduction_levels(kernel.stores) or not _is_divisible(kernel):
        return None
    size = kernel.loops[0]
    parts = min(
        MAX_PARTS.value, count * hint(size) // MIN_PART_WORK.value, hint(size) // PART_STEP.value
    )
    if parts < 2 or count >= SHARED_ELEMENTS.value:
        return None
    axes = Body(kernel).forms.loops[0]
    longest, part = longest_axis(axes), part_of(axes, parts)
    if isinstance(longest.size, int) and isinstance(part, int):
        parts = -(-longest.size // part)
    others = product([axis.size for axis in axes if axis is not longest])
    return Split(parts, part * others, False) if parts > 1 else None


def _is_divisible(kernel: KernelBody) -> bool:
    """True unless iterations depend on earlier ones, or add to memory."""
    parts = all_parts(store_roots(kernel.stores))
    sequential = any(part.fn == "scan" for part in parts)
    return not sequential and not any(store.atomic for store in kernel.stores)
