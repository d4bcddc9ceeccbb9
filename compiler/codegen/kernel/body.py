"""The IR of one kernel: an element per index, with loops, loads and stores.

A kernel is written in scalars, as if it ran once for each element of a result:

    i, j = kernel.indices                         # an element (i, j)
    r = kernel.loop(K)                            # r = 0 … K - 1 for every element
    total = kernel.sum(X[i, r] * Y[r, j], r)      # reduces the loop
    kernel.store(Out, (i, j), total)

Calls build expressions, which `emit` lowers to blocks, masks and loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import Expr, Term, Tracer
from compiler.errors import CompileError
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import DType, Shape, TensorType
from compiler.support.dataclass import dataclass

INDEX = DType.INT64
"""The dtype of an index in type promotion; kernels use 32 bits if that suffices."""


def as_tuple(indices: Any) -> tuple[Term, ...]:
    """The argument of `[…]` as a tuple."""
    return cast("tuple[Term, ...]", indices if isinstance(indices, tuple) else (indices,))


@dataclass(frozen=True)
class Source:
    """The source of a load: a value, and the shape it is viewed in."""

    operand: NumpyOperand
    shape: Shape


@dataclass(frozen=True)
class Ref:
    """A value in device memory in a kernel; `X[i, j]` loads one of its elements."""

    kernel: KernelBody
    operand: NumpyOperand
    shape: Shape

    @property
    def type(self) -> TensorType:
        """Its element type and the shape it is viewed in."""
        return TensorType(self.operand.type.dtype, self.shape)

    def __getitem__(self, indices: Any) -> Expr:
        """Load the element at these indices, which must always be in bounds."""
        return self.at(*as_tuple(indices))

    def at(self, *indices: Term, where: Term | None = None, other: float = 0) -> Expr:
        """Load the element at these indices; `other`, without a load, if `where` is false.

        A bfloat16 element is upcast: kernels compute in float32 and round when they store.
        """
        if len(indices) != len(self.shape):
            raise CompileError(f"{self.operand.name}: {len(indices)} indices for {self.shape}")
        args = (*indices, *(() if where is None else (where, other)))
        dtype = self.type.dtype
        loaded = self.kernel.node("load", args, dtype, Source(self.operand, self.shape))
        return loaded.astype(DType.FP32) if dtype is DType.BF16 else loaded

    def reshaped(self, shape: Sequence[Size]) -> Ref:
        """A view of the same elements in another shape."""
        return Ref(self.kernel, self.operand, tuple(shape))


@dataclass(frozen=True)
class Store:
    """A store to an element, or an atomic add."""

    operand: NumpyOperand
    shape: Shape
    indices: tuple[Term, ...]
    value: Term
    where: Term | None
    atomic: bool


def number_of(part: Expr) -> int:
    """The number of an index's axis, or of a loop."""
    return cast(int, part.extra)


def size_of(term: Term) -> Size | None:
    """The size that a term denotes, if it is a size or an integer; else None."""
    if isinstance(term, Expr):
        return cast(Size, term.extra) if term.fn == "size" else None
    return term if isinstance(term, int) else None


def _before_upcast(factor: Expr) -> Expr:
    """A bfloat16 factor before its upcast: its products are exact in float32."""
    (inner, *_) = factor.args or (factor,)
    is_stored = factor.fn == "astype" and isinstance(inner, Expr) and inner.dtype is DType.BF16
    return inner if is_stored and isinstance(inner, Expr) else factor


class KernelBody(Tracer):
    """The expressions of one kernel; also the `xp` namespace of its arithmetic.

    If `programs` is not 0, so many programs visit all elements, and may store sums over them.
    """

    def __init__(self, name: str, shape: Sequence[Size]) -> None:
        super().__init__()
        self.name = name
        self.shape: Shape = tuple(shape)
        self.indices = tuple(self.node("index", (), INDEX, axis) for axis in range(len(self.shape)))
        self.loops: list[Size] = []
        self.ends: dict[int, Expr] = {}
        self.split_size: Size | None = None
        self.programs = 0
        self.stores: list[Store] = []

    @property
    def is_empty(self) -> bool:
        """True if a size of its grid is 0, or all its results have no elements."""
        return 0 in self.shape or all(store.operand.type.numel == 0 for store in self.stores)

    def node(self, fn: str, args: tuple[Any, ...], dtype: DType, extra: Any = None) -> Expr:
        """Create a scalar node; equal ones are one object."""
        return self._node(fn, args, (), dtype, extra)

    def size(self, size: Size | Expr) -> Term:
        """A size as a term."""
        return self.node("size", (), INDEX, size) if isinstance(size, Dim) else size

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """Cast `x`, unless it has the type already; bfloat16 stays float32 until stored."""
        working_dtype = DType.FP32 if dtype is DType.BF16 and x.dtype is not dtype else dtype
        return super().cast(x, working_dtype)

    def astype(self, x: Term, dtype: Any) -> Any:
        """Cast `x`; Python numbers are returned unchanged."""
        return x.astype(dtype) if isinstance(x, Expr) else x

    def loop(self, size: Size, until: Term | None = None) -> Expr:
        """Create a loop; returns its index, below `size` or a data-dependent `until`."""
        if isinstance(until, Expr):
            self.ends[len(self.loops)] = until
        self.loops.append(size if until is None or isinstance(until, Expr) else int(until))
        return self.node("loop", (), INDEX, len(self.loops) - 1)

    def trip_count(self, loop: int) -> Size:
        """The number of iterations of a loop: those of one part, if the reduction is split."""
        return self.loops[loop] if self.split_size is None else self.split_size

    def unravel(self, index: Term, shape: Sequence[Size | Expr]) -> tuple[Term, ...]:
        """The indices in a shape of the element at a flat index."""
        longer = (axis for axis, n in enumerate(shape) if isinstance(n, Expr) or n != 1)
        first = next(longer, len(shape) - 1)
        parts: list[Term] = []
        for axis in reversed(range(first, len(shape))):
            inner = self.size(shape[axis])
            parts.append(self.mod(index, inner) if axis > first else index)
            index = self.div(index, inner)
        return (*[0] * first, *reversed(parts))

    def div(self, a: Term, b: Term) -> Term:
        """The quotient of two indices, which are not negative."""
        if isinstance(b, int) and b == 1:
            return a
        if isinstance(a, Expr) and a.fn == "index_div":
            inner, outer = size_of(a.args[1]), size_of(b)
            if inner is not None and outer is not None:
                return self.div(a.args[0], self.size(inner * outer))
        return self.node("index_div", (a, b), INDEX)

    def mod(self, a: Term, b: Term) -> Term:
        """The remainder of two indices."""
        if isinstance(b, int) and b == 1:
            return 0
        return self.node("index_mod", (a, b), INDEX)

    def ravel(self, indices: Sequence[Term], shape: Sequence[Size]) -> Expr:
        """The flat index in a shape of the element at these indices."""
        return self.node("ravel", tuple(indices), INDEX, tuple(shape))

    # ---- random numbers ----

    def key(self, keys: NumpyOperand) -> Expr:
        """Load the first of a tensor of RNG keys, the same for every element."""
        return self.node("key", (), INDEX, keys)

    def uniform(self, key: Expr, index: Term, dtype: DType = DType.FP32, stream: int = 0) -> Expr:
        """The number of an element in a key's stream, uniform in [0, 1)."""
        return self.node("uniform", (key, index), dtype, stream)

    def normal(self, key: Expr, index: Term, dtype: DType = DType.FP32, stream: int = 0) -> Expr:
        """The number of an element in a key's stream, standard normal."""
        return self.node("normal", (key, index), dtype, stream)

    def randint(self, key: Expr, index: Term, span: Term, stream: int = 0) -> Expr:
        """The integer of an element in a key's stream, uniform in [0, span)."""
        return self.node("below", (key, index, span), DType.INT64, stream)

    # ---- merged indices ----

    def joined(self, indices: Sequence[Term], shape: Shape) -> list[tuple[Term, Size]]:
        """Pair indices with their strides; indices that `unravel` split are merged again."""
        pairs: list[tuple[Term, Size]] = []
        for axis, index in enumerate(indices):
            pairs.append((index, product(shape[axis + 1 :])))
            while len(pairs) > 1 and (merged := self._merge_indices(*pairs[-2:])) is not None:
                pairs[-2:] = [merged]
        return [(i, n) for i, n in pairs if not self._is_zero(i)]

    def _merge_indices(
        self, outer: tuple[Term, Size], inner: tuple[Term, Size]
    ) -> tuple[Term, Size] | None:
        """Merge the indices of two adjacent axes that `unravel` split; None if it did not."""
        (a, apart), (b, stride) = outer, inner
        size = size_of(b.args[1]) if isinstance(b, Expr) and b.fn == "index_mod" else None
        if not isinstance(a, Expr) or not isinstance(b, Expr) or size is None:
            return None
        merged = b.args[0]
        rest = self.div(merged, b.args[1])
        if apart != stride * size:
            return None
        if a is rest:
            return merged, stride
        more = size_of(a.args[1]) if a.fn == "index_mod" and a.args[0] is rest else None
        return None if more is None else (self.mod(merged, self.size(size * more)), stride)

    def _is_zero(self, index: Term) -> bool:
        """True for the index of an axis of size 1."""
        if not isinstance(index, Expr):
            return index == 0
        return index.fn == "index" and self.shape[number_of(index)] == 1

    # ---- reductions ----

    def sum(self, value: Term, over: Expr) -> Expr:
        """The sum over all iterations of a loop."""
        return self._reduction("sum", value, over)

    def max(self, value: Term, over: Expr) -> Expr:
        """The maximum over all iterations of a loop."""
        return self._reduction("max", value, over)

    def min(self, value: Term, over: Expr) -> Expr:
        """The minimum over all iterations of a loop."""
        return self._reduction("min", value, over)

    def prod(self, value: Term, over: Expr) -> Expr:
        """The product over all iterations of a loop."""
        return self._reduction("prod", value, over)

    def moments(self, value: Expr, over: Expr, where: Term | None = None) -> tuple[Expr, Expr]:
        """The mean and the (biased) variance over the iterations of a loop where `where` holds."""
        args = (value, over) if where is None else (value, over, where)
        moments = self.node("reduce", args, value.dtype, "moments")
        count, mean, squares = (self.node("moment", (moments,), value.dtype, n) for n in range(3))
        return mean, squares / count

    def cumsum(self, value: Expr, over: Expr) -> Expr:
        """The inclusive prefix sum over the iterations of a loop, which must fit in one tile."""
        return self.node("scan", (value, over), value.dtype)

    def argsort(self, value: Expr, over: Expr, descending: bool = False) -> Expr:
        """The iteration whose value is at each position after sorting.

        The sort is stable, and NaN is the largest. The loop must fit in one tile; values have
        32 bits or fewer.
        """
        return self.node("order", (value, over), INDEX, descending)

    def program(self) -> Expr:
        """The number of a program, below `programs`, each of which visits many elements."""
        return self.node("program", (), INDEX, self.programs)

    def row_sum(self, value: Expr) -> Expr:
        """The sum over the elements that a program visits, for each iteration of a loop."""
        return self.node("row_sum", (value,), value.dtype)

    def argmax(self, value: Term, over: Expr) -> Expr:
        """The first iteration of a loop with the maximum value."""
        best = self.max(value, over)
        beyond = self.size(self.loops[number_of(over)])
        candidate = self.where(self.call("equal", value, best), over, beyond)
        return self.min(self.astype(candidate, DType.INT32), over)

    def _reduction(self, fn: str, value: Term, over: Expr) -> Expr:
        dtype = value.dtype if isinstance(value, Expr) else DType.FP32
        return self.node("reduce", (value, over), dtype, fn)

    def store(
        self, out: Ref, indices: Sequence[Term], value: Term, where: Term | None = None
    ) -> None:
        """Store to `out` for every element (and iteration) where `where` holds."""
        self.stores.append(Store(out.operand, out.shape, tuple(indices), value, where, False))

    def add(
        self, out: Ref, indices: Sequence[Term], value: Term, where: Term | None = None
    ) -> None:
        """Add to an element of `out` atomically, in any order."""
        self.stores.append(Store(out.operand, out.shape, tuple(indices), value, where, True))


class MatmulBody(KernelBody):
    """A matmul kernel, whose elements are sums of products over K.

    It has two loops of the same size: the K index for the left factor, and for the right one.
    With split-K into several `parts`, the first axis of the stack numbers them, and each has
    its own K range. `precision` is the `input_precision` of `tl.dot` for float32: "ieee" or "tf32".
    The K loop of a matrix may end earlier (`ends`); then `total_length` is the sum of all lengths.
    """

    def __init__(
        self, name: str, stack: Sequence[Size], sides: tuple[Size, Size, Size], parts: int = 1,
        precision: str = "ieee",
    ) -> None:  # fmt: skip
        rows, columns, inner = sides
        super().__init__(name, (*[parts] * (parts > 1), *stack, rows, columns))
        self.parts = parts
        self.precision = precision
        self.iterations = self.loop(inner), self.loop(inner)
        self.total_length: Size | None = None

    @property
    def products(self) -> Shape:
        """Factors of the number of multiplications."""
        if self.total_length is not None:
            return (*self.shape[-2:], self.total_length)
        return (*self.shape[self.parts > 1 :], self.loops[0])

    def end_early(self, length: Term, total: Size) -> None:
        """End the K loop of each matrix at its `length`; all lengths together are `total`."""
        if isinstance(length, Expr):
            self.ends = dict.fromkeys(range(len(self.loops)), length)
        self.total_length = total

    def contract(self, a: Expr, b: Expr) -> Expr:
        """The sum over K of a * b; `a` does not depend on the column, nor `b` on the row."""
        accumulator = DType.FP64 if a.dtype is DType.FP64 else DType.FP32
        factors = [_before_upcast(factor) for factor in (a, b)]
        if all(factor.dtype is DType.BF16 for factor in factors):
            a, b = factors
        return self.node("dot", (a, b.astype(a.dtype)), accumulator)

    def column_sum(self, b: Expr) -> Expr:
        """The sum over K of the right factor `b`, for each column; stored once per column."""
        accumulator = DType.FP64 if b.dtype is DType.FP64 else DType.FP32
        return self.node("column_sum", (_before_upcast(b),), accumulator)
