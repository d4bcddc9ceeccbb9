"""What a kernel moves and computes, noted while it is written, for accounts that need no machine.

Each load that stands in a kernel's text reads the elements its indices range over. Within one run
through a loop an element comes from memory once, however many lanes ask for it: caches see to the
rest. Another run through the loop reads it again, as a softmax in two passes does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from compiler.codegen.bind_and_run import NumpyOperand
from compiler.codegen.trace import Expr, Term, ordered
from compiler.codegen.triton.kernel_ir import KernelBody, Source, Tiles, number_of
from compiler.ir.dims import Size
from compiler.ir.types import DType
from compiler.plan import Storage

Sizes = tuple[Size, ...]
"""Factors of a count."""

_FREE = frozenset(
    "load index loop size full astype index_div index_mod ravel key dot moment".split()
)
"""Parts of expressions that are no arithmetic on elements; sums of products are counted apart."""


@dataclass(frozen=True)
class Access:
    """Elements of one value, out of `numel`, that a kernel moves in one run through them.

    They are as many as `touched` multiplied, or all there are.
    """

    storage: Storage
    numel: Size
    itemsize: int
    touched: Sizes
    run: int


@dataclass(frozen=True)
class Traffic:
    """All accesses of a kernel, and its arithmetic: how often each number of operations is done.

    `products` are multiplications of sums of products, each with an addition, in type `factor`.
    """

    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    operations: Mapping[Sizes, int]
    products: Sizes | None = None
    factor: DType = DType.FP32


def traffic_of(
    lanes: KernelBody, loads: Iterable[tuple[Expr, int]], reach: Mapping[Expr, frozenset[int]]
) -> Traffic:
    """The traffic of a kernel, given the loads it was written with and the run each stands in."""
    reads = [_read(lanes, part, run) for part, run in loads]
    stores = [_access(lanes, s.operand, s.indices, 0) for s in lanes.stores]
    again = [a for a, s in zip(stores, lanes.stores, strict=True) if s.adds]
    values = [store.value for store in lanes.stores]
    dots = [part for part in _computed(values) if part.fn == "dot"]
    work = Counter(
        (*lanes.shape, *(lanes.run(i) for i in sorted(_turns(part, reach))))
        for part in _computed(values)
        if part.fn not in _FREE
    )
    if not dots:
        return Traffic((*reads, *again), tuple(stores), work)
    sizes = lanes.products if isinstance(lanes, Tiles) else ()
    sizes = (*((len(dots),) if len(dots) > 1 else ()), *sizes)
    return Traffic(tuple(reads), tuple(stores), work, sizes, _factor(dots[0]))


def work_on(values: Sequence[Term]) -> int:
    """Operations that values cost for each element."""
    return sum(part.fn not in _FREE for part in _computed(values))


def whole(operand: NumpyOperand) -> Access:
    """All elements of a value, once."""
    numel = operand.type.numel
    return Access(operand.storage, numel, operand.type.dtype.itemsize, (numel,), 0)


def _factor(dot: Expr) -> DType:
    return cast(Expr, dot.args[0]).dtype


def _turns(part: Expr, reach: Mapping[Expr, frozenset[int]]) -> frozenset[int]:
    """The loops in which a part is computed."""
    inner = part.args[0] if part.fn == "reduce" else part
    return reach[inner] if isinstance(inner, Expr) else frozenset()


def _computed(values: Sequence[Term]) -> Iterator[Expr]:
    """The parts of what is stored, down to where it is loaded, each once."""
    found: dict[Expr, None] = {}
    left = [value for value in values if isinstance(value, Expr)]
    while left:
        part = left.pop()
        if part not in found:
            found[part] = None
            left += part.parts() if part.fn not in ("load", "dot") else []
    return iter(found)


def _read(lanes: KernelBody, part: Expr, run: int) -> Access:
    source = cast(Source, part.extra)
    return _access(lanes, source.operand, part.args[: len(source.shape)], run)


def _access(lanes: KernelBody, operand: NumpyOperand, indices: Sequence[Term], run: int) -> Access:
    """What indices range over: the axes of the lanes, and the turns of loops, that are in them."""
    parts = {part for i in indices if isinstance(i, Expr) for part in ordered(i)}
    axes = sorted({number_of(part) for part in parts if part.fn == "index"})
    loops = sorted({number_of(part) for part in parts if part.fn == "loop"})
    touched = (*(lanes.shape[axis] for axis in axes), *(lanes.loops[turn] for turn in loops))
    type = operand.type
    return Access(operand.storage, type.numel, type.dtype.itemsize, touched, run)
