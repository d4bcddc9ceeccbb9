"""What the expressions of a kernel are made of, asked before a line of it is written."""

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

NARROW = frozenset(
    "add subtract multiply negative where less less_equal greater greater_equal equal not_equal "
    "maximum minimum absolute".split()
)
"""What kernels do in 16 bits as it is."""


@dataclass
class Loop:
    """A loop as the kernel has it: how many turns, how many side by side."""

    size: Size
    width: int
    whole: bool
    name: str
    live: str


def stem_of(part: Expr) -> str:
    """What the name of a part begins with."""
    if part.fn == "load":
        return cast(Source, part.extra).operand.name
    return {"index": "i", "index_div": "i", "index_mod": "i"}.get(part.fn, part.fn)


def operand_types(part: Expr) -> list[DType | None]:
    """What NumPy's function makes of its operands before it computes; None leaves one as it is."""
    if part.fn == "where":
        return [DType.BOOL, part.dtype, part.dtype]
    if part.fn.startswith("logical_"):
        return [DType.BOOL for _ in part.args]
    if part.fn not in ELEMENTWISE:
        return [part.dtype for _ in part.args]
    given = [arg.dtype.numpy if isinstance(arg, Expr) else type(arg) for arg in part.args]
    found = getattr(np, part.fn).resolve_dtypes((*given, None))[: len(given)]
    return [DType.of(each) for each in found]


def pointer_type(operand: NumpyOperand) -> str:
    """What a parameter is that points to a value. Memory begins at multiples of 64 bytes."""
    aligned = not operand.region.has_gaps and is_multiple(operand.region.offset, 16)
    return POINTERS[operand.type.dtype] + ":16" * aligned


def size_type(size: Size) -> str:
    """What a parameter is that says a size."""
    return SIZE + ":16" * is_multiple(size, 16)


def held_in(dtype: DType) -> DType:
    """What sums of a type are kept in."""
    return DType.FP32 if dtype in HALVES else DType.INT32 if dtype is DType.BOOL else dtype


def limits_of(dtype: DType) -> tuple[int, int]:
    """The least and the largest whole number of a type."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def programs(count: Size, width: int) -> str:
    """How many programs of so many lanes there are."""
    return f"-(-({count}) // {width})" if isinstance(count, Dim) else str(-(-count // width))


def power_of_two(size: int) -> int:
    """The power of two that is not below a size."""
    return 1 << max(0, size - 1).bit_length()


def loop_of(part: Expr) -> int:
    """The number of the loop that a reduction closes."""
    return number_of(cast(Expr, part.args[1]))


def roots_of(stores: Iterable[Store]) -> Iterator[Expr]:
    """The expressions that stores need."""
    for store in stores:
        for term in (*store.indices, store.value, store.where):
            if isinstance(term, Expr):
                yield term


def levels_of(stores: Iterable[Store]) -> list[list[Expr]]:
    """Reductions that can share a run through their loop, those that others wait for first."""
    depth: dict[Expr, int] = {}
    for part in all_parts(roots_of(stores)):
        below = max((depth[each] for each in part.parts()), default=0)
        depth[part] = below + (part.fn == "reduce")
    found: dict[tuple[int, int], list[Expr]] = {}
    for part in (part for part in depth if part.fn == "reduce"):
        found.setdefault((depth[part], loop_of(part)), []).append(part)
    return [found[key] for key in sorted(found)]


def _needed(lanes: KernelBody) -> list[Expr]:
    """The expressions that a kernel needs: the ends of its loops, and what its stores need."""
    return [*lanes.ends.values(), *roots_of(lanes.stores)]


def uses_of(lanes: KernelBody) -> Counter[Expr]:
    """How often the text of each expression is needed: by others, by loops and by stores."""
    roots = _needed(lanes)
    uses = Counter(roots)
    for part in all_parts(roots):
        for each in part.parts():
            uses[each] += 2 if repeats(part.fn) else 1
    return uses


def reach_of(lanes: KernelBody) -> dict[Expr, frozenset[int]]:
    """The loops that each expression changes with."""
    reach: dict[Expr, frozenset[int]] = {}
    for part in all_parts(_needed(lanes)):
        found = frozenset[int]().union(*(reach[each] for each in part.parts()))
        if part.fn == "loop":
            found = frozenset({number_of(part)})
        reach[part] = found - _closed(part)
    return reach


def _closed(part: Expr) -> frozenset[int]:
    """The loops that end with a part."""
    if part.fn == "dot":
        return frozenset({0, 1})
    return frozenset({loop_of(part)}) if part.fn == "reduce" else frozenset()
