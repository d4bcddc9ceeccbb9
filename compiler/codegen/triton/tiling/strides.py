"""Memory strides between adjacent elements, or adjacent iterations of a loop, of a kernel.

Adjacent threads should access adjacent memory (coalescing). The strides of a kernel's loads and
stores show whether that is along elements or along iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from compiler.codegen.kernel.analysis import store_roots
from compiler.codegen.kernel.body import KernelBody, MatmulBody, Source, number_of, size_of
from compiler.codegen.trace import Expr, Term, all_parts, ordered
from compiler.ir.dims import Size, is_multiple, product
from compiler.ir.types import Shape

RUNS = (16, 8, 4, 2, 1)
"""Lengths of contiguous runs that make a difference: 16 is the longest vector access."""

WINDOWS = "windows-"
"""The beginning of the form of products over windows of images."""


def iterations_are_strided(kernel: KernelBody) -> bool:
    """True if more accesses are contiguous along elements than along iterations.

    Example: a column sum, whose iterations are a row apart, and whose elements are adjacent.
    """
    votes = 0
    for indices, shape in _accesses(kernel):
        element_stride = _stride(indices, shape, _innermost_axis(kernel), None)
        iteration_strides = [_stride(indices, shape, None, n) for n in range(len(kernel.loops))]
        if element_stride != 0 and any(stride != 0 for stride in iteration_strides):
            votes += (element_stride == 1) - (1 in iteration_strides)
    return votes > 0


def guards_vary(kernel: KernelBody) -> bool:
    """True if adjacent elements differ in whether they store."""
    guards = [store.where for store in kernel.stores if store.where is not None]
    return any(index_stride(guard, _innermost_axis(kernel), None) != 0 for guard in guards)


def _innermost_axis(kernel: KernelBody) -> int | None:
    """The axis that varies fastest between elements."""
    axes = [axis for axis, size in enumerate(kernel.shape) if size != 1]
    return axes[-1] if axes else None


def _accesses(kernel: KernelBody) -> Iterator[tuple[Sequence[Term], Shape]]:
    """The indices of each load and store, with the shape they refer to."""
    for part in all_parts(store_roots(kernel.stores)):
        if part.fn == "load":
            source = cast(Source, part.extra)
            yield part.args[: len(source.shape)], source.shape
    for store in kernel.stores:
        yield store.indices, store.shape


def _stride(
    indices: Sequence[Term], shape: Shape, axis: int | None, loop: int | None
) -> Size | None:
    """The distance, in elements, to the next element along an axis, or to the next iteration."""
    total: Size = 0
    for axis_number, index in enumerate(indices):
        step = index_stride(index, axis, loop)
        if step is None:
            return None
        total = total + step * product(shape[axis_number + 1 :])
    return total


def contiguous_run(offset: Sequence[tuple[Term, Size]], axis: int | None, loop: int | None) -> int:
    """Adjacent elements along an axis, or iterations, that are adjacent in memory: a power of two.

    At most 16. They begin at multiples of it; divisions may end a run. `offset` is a sum of indices
    times strides.
    """
    if _offset_stride(offset, axis, loop) != 1:
        return 1
    divisors = [
        size_of(part.args[1])
        for part in all_parts(index for index, _ in offset if isinstance(index, Expr))
        if part.fn in ("index_div", "index_mod") and index_stride(part.args[0], axis, loop) != 0
    ]
    runs = (run for run in RUNS if all(d is not None and is_multiple(d, run) for d in divisors))
    return next(runs, 1)


def _offset_stride(
    offset: Sequence[tuple[Term, Size]], axis: int | None, loop: int | None
) -> Size | None:
    """How much a sum of indices times strides grows; None if that is not constant."""
    steps = [(index_stride(index, axis, loop), stride) for index, stride in offset]
    if any(step is None for step, _ in steps):
        return None
    return sum((step * stride for step, stride in steps if step is not None), 0)


def product_form(kernel: MatmulBody, dot: Expr) -> str:
    """How the factors of a product lie in memory: N if rows are contiguous, T if columns are.

    The left factor's rows are along K, the right one's along N. `windows-` precedes it if K runs
    over windows of images; it is empty if some factor has neither.
    """
    rows, columns = len(kernel.shape) - 2, len(kernel.shape) - 1
    left, right = dot.parts()
    sides = _contiguous(kernel, left, rows, 0), _contiguous(kernel, right, columns, 1)
    if not all(sides):
        return ""
    prefix = WINDOWS * (_divides_k(kernel, left, 0) or _divides_k(kernel, right, 1))
    return f"{prefix}{'N' if sides[0] == 'loop' else 'T'}{'N' if sides[1] == 'axis' else 'T'}"


def _contiguous(kernel: MatmulBody, factor: Expr, axis: int, loop: int) -> str:
    """What elements of a factor are adjacent along: its `axis`, the `loop`; empty for neither."""
    for offset in _offsets(kernel, factor):
        if _offset_stride(offset, None, loop) == 1:
            return "loop"
        if _offset_stride(offset, axis, None) == 1:
            return "axis"
    return ""


def _divides_k(kernel: MatmulBody, factor: Expr, loop: int) -> bool:
    """True if the K index of a factor is divided into several indices."""
    indices = [i for offset in _offsets(kernel, factor) for i, _ in offset if isinstance(i, Expr)]
    divisions = [part for part in all_parts(indices) if part.fn in ("index_div", "index_mod")]
    return any(index_stride(part.args[0], None, loop) != 0 for part in divisions)


def _offsets(kernel: MatmulBody, factor: Expr) -> list[list[tuple[Term, Size]]]:
    """The offsets of a factor's loads: sums of indices times strides."""
    loads = [part for part in all_parts([factor]) if part.fn == "load"]
    shapes = [cast(Source, load.extra).shape for load in loads]
    return [kernel.joined(x.args[: len(s)], s) for x, s in zip(loads, shapes, strict=True)]


def index_stride(term: Term, axis: int | None, loop: int | None) -> Size | None:
    """How much a term grows per element along an axis, or per iteration of a loop.

    None if the growth is not constant. Divisions are assumed not to wrap around.
    """
    if not isinstance(term, Expr):
        return 0
    steps: dict[Expr, Size | None] = {}
    for part in ordered(term):
        steps[part] = _step(part, steps, axis, loop)
    return steps[term]


def _step(
    part: Expr, steps: dict[Expr, Size | None], axis: int | None, loop: int | None
) -> Size | None:
    if part.fn in ("index", "loop"):
        return int(number_of(part) == (axis if part.fn == "index" else loop))
    own = [steps[arg] if isinstance(arg, Expr) else 0 for arg in part.args]
    if all(isinstance(stride, int) and stride == 0 for stride in own):
        return 0
    if None in own:
        return None
    a, b = cast("list[Size]", own[:2] if len(own) > 1 else [own[0], 0])
    match part.fn:
        case "add":
            return a + b
        case "subtract":
            return a - b
        case "multiply":
            return (
                _scaled(a, part.args[1]) if b == 0 else _scaled(b, part.args[0]) if a == 0 else None
            )
        case "index_mod" | "astype":
            return a if b == 0 else None
        case "index_div":
            return _divided(a, part.args[1]) if b == 0 else None
        case _:
            return None


def _scaled(step: Size, factor: Term) -> Size | None:
    size = size_of(factor)
    return None if size is None else step * size


def _divided(step: Size, divisor: Term) -> Size | None:
    """Steps smaller than the divisor are taken as 0."""
    size = size_of(divisor)
    if size is None:
        return None
    if step == 1:
        return 0
    whole = isinstance(step, int) and isinstance(size, int) and step % size == 0
    return step // size if whole or step == size else None
