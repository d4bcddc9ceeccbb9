"""Analyses of a kernel's expressions, used before it is emitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from compiler.codegen.bind_and_run import NumpyOperand
from compiler.codegen.trace import ELEMENTWISE, Expr, all_parts
from compiler.codegen.triton.kernel_ir import KernelBody, Source, Store, number_of
from compiler.codegen.triton.numpy_names import POINTERS, SIZE, repeats
from compiler.ir.dims import Dim, Size, is_multiple
from compiler.ir.types import HALVES, DType

HALF_FUNCTIONS = frozenset(
    "add subtract multiply negative where less less_equal greater greater_equal equal not_equal "
    "maximum minimum absolute".split()
)
"""Functions computed directly in fp16."""


@dataclass
class Loop:
    """A loop of the emitted kernel: size, iterations per tile, names of index and mask.

    `persistent` is true if one tile covers all iterations.
    """

    size: Size
    width: int
    persistent: bool
    name: str
    live: str


def name_stem(part: Expr) -> str:
    """The stem of the variable name for an expression."""
    if part.fn == "load":
        return cast(Source, part.extra).operand.name
    return {"index": "i", "index_div": "i", "index_mod": "i"}.get(part.fn, part.fn)


def operand_types(part: Expr) -> list[DType | None]:
    """The dtypes NumPy casts operands to before it computes; None leaves an operand unchanged."""
    if part.fn == "where":
        return [DType.BOOL, part.dtype, part.dtype]
    if part.fn.startswith("logical_"):
        return [DType.BOOL for _ in part.args]
    if part.fn not in ELEMENTWISE:
        return [part.dtype for _ in part.args]
    types = [arg.dtype.numpy if isinstance(arg, Expr) else type(arg) for arg in part.args]
    found = getattr(np, part.fn).resolve_dtypes((*types, None))[: len(types)]
    return [DType.of(each) for each in found]


def pointer_type(operand: NumpyOperand) -> str:
    """The type of a pointer parameter. Buffers are aligned to 64 bytes."""
    aligned = not operand.region.is_strided and is_multiple(operand.region.offset, 16)
    return POINTERS[operand.type.dtype] + ":16" * aligned


def size_type(size: Size) -> str:
    """The type of a size parameter."""
    return SIZE + ":16" * is_multiple(size, 16)


def accumulator_type(dtype: DType) -> DType:
    """The dtype in which sums are accumulated."""
    return DType.FP32 if dtype in HALVES else DType.INT32 if dtype is DType.BOOL else dtype


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def program_count(count: Size, width: int) -> str:
    """The number of programs of `width` elements, as text."""
    return f"-(-({count}) // {width})" if isinstance(count, Dim) else str(-(-count // width))


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << max(0, size - 1).bit_length()


def reduced_loop(part: Expr) -> int:
    """The number of the loop that a reduction reduces."""
    return number_of(cast(Expr, part.args[1]))


def store_roots(stores: Iterable[Store]) -> Iterator[Expr]:
    """The expressions that stores need."""
    for store in stores:
        for term in (*store.indices, store.value, store.where):
            if isinstance(term, Expr):
                yield term


def reduction_levels(stores: Iterable[Store]) -> list[list[Expr]]:
    """Group reductions that can share a pass over their loop, in dependency order."""
    depth: dict[Expr, int] = {}
    for part in all_parts(store_roots(stores)):
        below = max((depth[each] for each in part.parts()), default=0)
        depth[part] = below + (part.fn == "reduce")
    found: dict[tuple[int, int], list[Expr]] = {}
    for part in (part for part in depth if part.fn == "reduce"):
        found.setdefault((depth[part], reduced_loop(part)), []).append(part)
    return [found[key] for key in sorted(found)]


def _needed(kernel: KernelBody) -> list[Expr]:
    """The expressions a kernel needs: the ends of its loops, and the operands of its stores."""
    return [*kernel.ends.values(), *store_roots(kernel.stores)]


def use_counts(kernel: KernelBody) -> Counter[Expr]:
    """Count how often the text of each expression is used: by others, by loops and by stores."""
    roots = _needed(kernel)
    uses = Counter(roots)
    for part in all_parts(roots):
        for each in part.parts():
            uses[each] += 2 if repeats(part.fn) else 1
    return uses


def loop_dependencies(kernel: KernelBody) -> dict[Expr, frozenset[int]]:
    """The loops that each expression depends on."""
    loop_deps: dict[Expr, frozenset[int]] = {}
    for part in all_parts(_needed(kernel)):
        found = frozenset[int]().union(*(loop_deps[each] for each in part.parts()))
        if part.fn == "loop":
            found = frozenset({number_of(part)})
        loop_deps[part] = found - _closed_loops(part)
    return loop_deps


def _closed_loops(part: Expr) -> frozenset[int]:
    """The loops that a reduction or dot product reduces."""
    if part.fn == "dot":
        return frozenset({0, 1})
    return frozenset({reduced_loop(part)}) if part.fn == "reduce" else frozenset()
