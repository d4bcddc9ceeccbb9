"""Analyses of a kernel's expressions, used before it is emitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import numpy as np

from compiler.codegen.kernel.body import KernelBody, Store, number_of
from compiler.codegen.trace import ELEMENTWISE, Expr, all_parts
from compiler.ir.types import HALVES, DType


def operand_types(part: Expr) -> list[DType | None]:
    """The dtypes NumPy casts operands to before it computes; None leaves an operand unchanged."""
    if part.fn == "where":
        return [DType.BOOL, part.dtype, part.dtype]
    if part.fn.startswith("logical_"):
        return [DType.BOOL for _ in part.args]
    if part.fn not in ELEMENTWISE:
        return [part.dtype for _ in part.args]
    types = [arg.dtype.numpy if isinstance(arg, Expr) else type(arg) for arg in part.args]
    resolved = getattr(np, part.fn).resolve_dtypes((*types, None))[: len(types)]
    return [DType.of(dtype) for dtype in resolved]


def accumulator_type(dtype: DType) -> DType:
    """The dtype in which sums are accumulated."""
    return DType.FP32 if dtype in HALVES else DType.INT32 if dtype is DType.BOOL else dtype


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


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
        below = max((depth[operand] for operand in part.parts()), default=0)
        depth[part] = below + (part.fn == "reduce")
    levels: dict[tuple[int, int], list[Expr]] = {}
    for part in (part for part in depth if part.fn == "reduce"):
        levels.setdefault((depth[part], reduced_loop(part)), []).append(part)
    return [levels[key] for key in sorted(levels)]


def needed(kernel: KernelBody) -> list[Expr]:
    """The expressions a kernel needs: the ends of its loops, and the operands of its stores."""
    return [*kernel.ends.values(), *store_roots(kernel.stores)]


def loop_dependencies(kernel: KernelBody) -> dict[Expr, frozenset[int]]:
    """The loops that each expression depends on."""
    loop_deps: dict[Expr, frozenset[int]] = {}
    for part in all_parts(needed(kernel)):
        deps = frozenset[int]().union(*(loop_deps[operand] for operand in part.parts()))
        if part.fn == "loop":
            deps = frozenset({number_of(part)})
        loop_deps[part] = deps - _closed_loops(part)
    return loop_deps


def _closed_loops(part: Expr) -> frozenset[int]:
    """The loops that a reduction, a dot product or the sum of a factor reduces."""
    if part.fn in ("dot", "column_sum"):
        return frozenset({0, 1})
    return frozenset({reduced_loop(part)}) if part.fn == "reduce" else frozenset()
