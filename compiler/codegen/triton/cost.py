"""The cost of a kernel (bytes and flops), recorded while it is emitted; needs no device.

Each load in a kernel's text reads the elements its indices range over. Within one pass over a loop
an element is fetched from memory once, however many threads load it: caches serve the rest. Another
pass over the loop fetches it again, as in a two-pass softmax.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from compiler.codegen.kernel.body import KernelBody, MatmulBody, Source, number_of
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import Expr, Term, ordered
from compiler.ir.dims import Size
from compiler.ir.types import DType
from compiler.plan import Storage
from compiler.support.dataclass import dataclass

Sizes = tuple[Size, ...]
"""Factors of a count."""

_NOT_COUNTED = frozenset(
    "load index loop size full astype index_div index_mod ravel key dot column_sum moment".split()
)
"""Expressions that are no elementwise arithmetic; dot products are counted separately."""


@dataclass(frozen=True)
class MovedElements:
    """Elements of one value, out of `numel`, that a kernel moves in one pass.

    Their number is the product of `touched`, at most `numel`.
    """

    storage: Storage
    numel: Size
    itemsize: int
    touched: Sizes
    run: int


@dataclass(frozen=True)
class KernelTraffic:
    """The memory accesses of a kernel, and its operations per element, by iteration space.

    `products` are the multiply-adds of dot products, in type `factor`.
    """

    reads: tuple[MovedElements, ...]
    writes: tuple[MovedElements, ...]
    operations: Mapping[Sizes, int]
    products: Sizes | None = None
    factor: DType = DType.FP32


def kernel_cost(
    kernel: KernelBody, loads: Iterable[tuple[Expr, int]], loop_deps: Mapping[Expr, frozenset[int]]
) -> KernelTraffic:
    """Compute the cost of a kernel from its loads, each with the loop pass that contains it."""
    reads = [_read(kernel, part, run) for part, run in loads]
    stores = [_access(kernel, s.operand, s.indices, 0) for s in kernel.stores]
    again = [a for a, s in zip(stores, kernel.stores, strict=True) if s.atomic]
    values = [store.value for store in kernel.stores]
    dots = [part for part in _computed(values) if part.fn == "dot"]
    work = Counter(
        (*kernel.shape, *(kernel.trip_count(i) for i in sorted(_loops_around(part, loop_deps))))
        for part in _computed(values)
        if part.fn not in _NOT_COUNTED
    )
    if not dots:
        return KernelTraffic((*reads, *again), tuple(stores), work)
    sizes = kernel.products if isinstance(kernel, MatmulBody) else ()
    sizes = (*((len(dots),) if len(dots) > 1 else ()), *sizes)
    return KernelTraffic(tuple(reads), tuple(stores), work, sizes, _factor(dots[0]))


def by_parts(traffic: KernelTraffic) -> KernelTraffic:
    """The cost of a kernel whose float32 products are six of bfloat16 parts each."""
    return replace(traffic, products=(6, *(traffic.products or ())), factor=DType.BF16)


def operation_count(values: Sequence[Term]) -> int:
    """The number of operations that computing the values takes per element."""
    return sum(part.fn not in _NOT_COUNTED for part in _computed(values))


def all_elements(operand: NumpyOperand) -> MovedElements:
    """An access to all elements of a value, once."""
    numel = operand.type.numel
    return MovedElements(operand.storage, numel, operand.type.dtype.itemsize, (numel,), 0)


def _factor(dot: Expr) -> DType:
    return cast(Expr, dot.args[0]).dtype


def _loops_around(part: Expr, loop_deps: Mapping[Expr, frozenset[int]]) -> frozenset[int]:
    """The loops in which a part is computed."""
    inner = part.args[0] if part.fn == "reduce" else part
    return loop_deps[inner] if isinstance(inner, Expr) else frozenset()


def _computed(values: Sequence[Term]) -> Iterator[Expr]:
    """The nodes computed for the stored values, down to loads, each once."""
    nodes: dict[Expr, None] = {}
    remaining = [value for value in values if isinstance(value, Expr)]
    while remaining:
        part = remaining.pop()
        if part not in nodes:
            nodes[part] = None
            remaining += part.parts() if part.fn not in ("load", "dot") else []
    return iter(nodes)


def _read(kernel: KernelBody, part: Expr, run: int) -> MovedElements:
    source = cast(Source, part.extra)
    return _access(kernel, source.operand, part.args[: len(source.shape)], run)


def _access(
    kernel: KernelBody, operand: NumpyOperand, indices: Sequence[Term], run: int
) -> MovedElements:
    """The access of a load or store: the axes and loops that its indices range over."""
    parts = {part for i in indices if isinstance(i, Expr) for part in ordered(i)}
    axes = sorted({number_of(part) for part in parts if part.fn == "index"})
    loops = sorted({number_of(part) for part in parts if part.fn == "loop"})
    touched = (*(kernel.shape[axis] for axis in axes), *(kernel.loops[loop] for loop in loops))
    touched += (kernel.programs,) * any(part.fn == "program" for part in parts)
    type = operand.type
    return MovedElements(operand.storage, type.numel, type.dtype.itemsize, touched, run)
