"""What one kernel computes: lanes, each with its indices, loops inside them, loads and stores.

A kernel is said in scalars, as if there were one lane for each element of a result:

    i, j = lanes.indices                        # a lane for each (i, j)
    r = lanes.loop(K)                           # every lane runs through r = 0 … K - 1
    total = lanes.sum(X[i, r] * Y[r, j], r)     # which a reduction closes again
    lanes.store(Out, (i, j), total)

Nothing runs here: calls build expressions, of which `emit` makes blocks, masks and loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from compiler.codegen.bind_and_run import NumpyOperand
from compiler.codegen.trace import Expr, Term, Tracer
from compiler.errors import CompileError
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import DType, Shape, TensorType

INDEX = DType.INT64
"""What an index counts as beside other numbers; kernels hold it in 32 bits where that suffices."""


def as_tuple(indices: Any) -> tuple[Term, ...]:
    """What stands between brackets."""
    return cast("tuple[Term, ...]", indices if isinstance(indices, tuple) else (indices,))


@dataclass(frozen=True)
class Source:
    """Where a load reads: a value, and the shape it is seen in."""

    operand: NumpyOperand
    shape: Shape


@dataclass(frozen=True)
class Ref:
    """A value in device memory, as a kernel's body sees it; `X[i, j]` is one of its elements."""

    lanes: KernelBody
    operand: NumpyOperand
    shape: Shape

    @property
    def type(self) -> TensorType:
        """Its element type and the shape it is seen in."""
        return TensorType(self.operand.type.dtype, self.shape)

    def __getitem__(self, indices: Any) -> Expr:
        """The element at these indices, which must be inside for every lane and turn."""
        return self.at(*as_tuple(indices))

    def at(self, *indices: Term, where: Term | None = None, other: float = 0) -> Expr:
        """The element at these indices; `other` where `where` is false, and nothing is read.

        One of bfloat16 is float32 from here on: kernels compute in that, and round what they store.
        """
        if len(indices) != len(self.shape):
            raise CompileError(f"{self.operand.name}: {len(indices)} indices for {self.shape}")
        args = (*indices, *(() if where is None else (where, other)))
        dtype = self.type.dtype
        found = self.lanes.node("load", args, dtype, Source(self.operand, self.shape))
        return found.astype(DType.FP32) if dtype is DType.BF16 else found

    def reshaped(self, shape: Sequence[Size]) -> Ref:
        """The same elements in another shape."""
        return Ref(self.lanes, self.operand, tuple(shape))


@dataclass(frozen=True)
class Store:
    """An element that a lane writes, or adds to what is there."""

    operand: NumpyOperand
    shape: Shape
    indices: tuple[Term, ...]
    value: Term
    where: Term | None
    adds: bool


def number_of(part: Expr) -> int:
    """The number of an index's axis, or of a loop."""
    return cast(int, part.extra)


def size_of(term: Term) -> Size | None:
    """A number that is the same in every lane, where it is known as a size."""
    if isinstance(term, Expr):
        return cast(Size, term.extra) if term.fn == "size" else None
    return term if isinstance(term, int) else None


def _as_stored(factor: Expr) -> Expr:
    """A factor of bfloat16 as it was loaded, since products of such are exact in float32."""
    (inner, *_) = factor.args or (factor,)
    is_stored = factor.fn == "astype" and isinstance(inner, Expr) and inner.dtype is DType.BF16
    return inner if is_stored and isinstance(inner, Expr) else factor


class KernelBody(Tracer):
    """The expressions of one kernel; also the `xp` that its arithmetic is written with."""

    def __init__(self, name: str, shape: Sequence[Size]) -> None:
        super().__init__()
        self.name = name
        self.shape: Shape = tuple(shape)
        self.indices = tuple(self.node("index", (), INDEX, axis) for axis in range(len(self.shape)))
        self.loops: list[Size] = []
        self.ends: dict[int, Expr] = {}
        self.part: Size | None = None
        self.stores: list[Store] = []

    def node(self, fn: str, args: tuple[Any, ...], dtype: DType, extra: Any = None) -> Expr:
        """A part of an expression; equal ones are one object."""
        return self._node(fn, args, (), dtype, extra)

    def size(self, size: Size) -> Term:
        """A size as a number in expressions."""
        return self.node("size", (), INDEX, size) if isinstance(size, Dim) else size

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """`x` itself if it has the type already; numbers of bfloat16 are float32 until stored."""
        kept = DType.FP32 if dtype is DType.BF16 and x.dtype is not dtype else dtype
        return super().cast(x, kept)

    def astype(self, x: Term, dtype: Any) -> Any:
        """`x` in another element type; a Python number stays one."""
        return x.astype(dtype) if isinstance(x, Expr) else x

    def loop(self, size: Size, until: Term | None = None) -> Expr:
        """A number that every lane takes from 0 to `size` - 1, or to its own `until` - 1."""
        if isinstance(until, Expr):
            self.ends[len(self.loops)] = until
        self.loops.append(size if until is None or isinstance(until, Expr) else int(until))
        return self.node("loop", (), INDEX, len(self.loops) - 1)

    def run(self, loop: int) -> Size:
        """How many turns a lane runs: those of its part, if the first index is that of a part."""
        return self.loops[loop] if self.part is None else self.part

    def unravel(self, index: Term, shape: Sequence[Size]) -> tuple[Term, ...]:
        """The indices in a shape of the element at a flat position."""
        first = next((axis for axis, size in enumerate(shape) if size != 1), len(shape) - 1)
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
        """What is left of an index."""
        if isinstance(b, int) and b == 1:
            return 0
        return self.node("index_mod", (a, b), INDEX)

    def ravel(self, indices: Sequence[Term], shape: Sequence[Size]) -> Expr:
        """The flat position in a shape of the element at these indices."""
        return self.node("ravel", tuple(indices), INDEX, tuple(shape))

    # ---- random numbers ----

    def key(self, keys: NumpyOperand) -> Expr:
        """The first of a tensor of keys, the same in every lane."""
        return self.node("key", (), INDEX, keys)

    def uniform(self, key: Expr, index: Term, dtype: DType = DType.FP32, stream: int = 0) -> Expr:
        """The number that a key has for an element of a stream, even over 0 <= number < 1."""
        return self.node("uniform", (key, index), dtype, stream)

    def normal(self, key: Expr, index: Term, dtype: DType = DType.FP32, stream: int = 0) -> Expr:
        """The number that a key has for an element of a stream, normal with deviation 1."""
        return self.node("normal", (key, index), dtype, stream)

    def randint(self, key: Expr, index: Term, span: Term, stream: int = 0) -> Expr:
        """The whole number that a key has for an element, even over 0 <= number < span."""
        return self.node("below", (key, index, span), DType.INT64, stream)

    # ---- joined indices ----

    def joined(self, indices: Sequence[Term], shape: Shape) -> list[tuple[Term, Size]]:
        """Indices with their strides; those that only took a number apart are that number again."""
        pairs: list[tuple[Term, Size]] = []
        for axis, index in enumerate(indices):
            pairs.append((index, product(shape[axis + 1 :])))
            while len(pairs) > 1 and (whole := self._put_together(*pairs[-2:])) is not None:
                pairs[-2:] = [whole]
        return [(i, n) for i, n in pairs if not self._is_zero(i)]

    def _put_together(
        self, outer: tuple[Term, Size], inner: tuple[Term, Size]
    ) -> tuple[Term, Size] | None:
        """What `unravel` took apart into two indices of neighbouring axes."""
        (a, apart), (b, stride) = outer, inner
        size = size_of(b.args[1]) if isinstance(b, Expr) and b.fn == "index_mod" else None
        if not isinstance(a, Expr) or not isinstance(b, Expr) or size is None:
            return None
        whole = b.args[0]
        rest = self.div(whole, b.args[1])
        if apart != stride * size:
            return None
        if a is rest:
            return whole, stride
        more = size_of(a.args[1]) if a.fn == "index_mod" and a.args[0] is rest else None
        return None if more is None else (self.mod(whole, self.size(size * more)), stride)

    def _is_zero(self, index: Term) -> bool:
        """True for the index of an axis of size 1."""
        if not isinstance(index, Expr):
            return index == 0
        return index.fn == "index" and self.shape[number_of(index)] == 1

    # ---- reductions ----

    def sum(self, value: Term, over: Expr) -> Expr:
        """The sum over all turns of a loop."""
        return self._closed("sum", value, over)

    def max(self, value: Term, over: Expr) -> Expr:
        """The largest over all turns of a loop."""
        return self._closed("max", value, over)

    def min(self, value: Term, over: Expr) -> Expr:
        """The smallest over all turns of a loop."""
        return self._closed("min", value, over)

    def prod(self, value: Term, over: Expr) -> Expr:
        """The product over all turns of a loop."""
        return self._closed("prod", value, over)

    def moments(self, value: Expr, over: Expr, where: Term | None = None) -> tuple[Expr, Expr]:
        """The mean and the (biased) variance over the turns of a loop where `where` holds."""
        args = (value, over) if where is None else (value, over, where)
        made = self.node("reduce", args, value.dtype, "moments")
        count, mean, squares = (self.node("moment", (made,), value.dtype, n) for n in range(3))
        return mean, squares / count

    def cumsum(self, value: Expr, over: Expr) -> Expr:
        """The sum over the turns of a loop up to each one; a program holds the whole loop."""
        return self.node("scan", (value, over), value.dtype)

    def argsort(self, value: Expr, over: Expr, descending: bool = False) -> Expr:
        """The turn whose value comes in each turn's place when all are sorted.

        What is equal stays in its order, and NaN is the largest. A program holds the whole loop;
        values have 32 bits or fewer.
        """
        return self.node("order", (value, over), INDEX, descending)

    def argmax(self, value: Term, over: Expr) -> Expr:
        """The first turn of a loop in which the value is the largest."""
        best = self.max(value, over)
        beyond = self.size(self.loops[number_of(over)])
        found = self.where(self.call("equal", value, best), over, beyond)
        return self.min(self.astype(found, DType.INT32), over)

    def _closed(self, fn: str, value: Term, over: Expr) -> Expr:
        dtype = value.dtype if isinstance(value, Expr) else DType.FP32
        return self.node("reduce", (value, over), dtype, fn)

    def store(
        self, out: Ref, indices: Sequence[Term], value: Term, where: Term | None = None
    ) -> None:
        """Write an element of `out` in every lane (and turn) where `where` holds."""
        self.stores.append(Store(out.operand, out.shape, tuple(indices), value, where, False))

    def add(
        self, out: Ref, indices: Sequence[Term], value: Term, where: Term | None = None
    ) -> None:
        """Add to an element of `out`; several lanes may add to the same one, in any order."""
        self.stores.append(Store(out.operand, out.shape, tuple(indices), value, where, True))


class Tiles(KernelBody):
    """A kernel whose lanes are elements of matrices, each a sum of products over many turns.

    There are two loops of as many turns: a turn as the left factor sees it, and as the right one.
    Where the sum is cut into several `parts`, the first axis of the stack counts them, and each has
    turns of its own. `precision` is what `tl.dot` multiplies float32 in: "ieee" or "tf32".
    """

    def __init__(
        self, name: str, stack: Sequence[Size], sides: tuple[Size, Size, Size], parts: int = 1,
        precision: str = "ieee",
    ) -> None:  # fmt: skip
        rows, columns, inner = sides
        super().__init__(name, (*[parts] * (parts > 1), *stack, rows, columns))
        self.parts = parts
        self.precision = precision
        self.turns = self.loop(inner), self.loop(inner)

    @property
    def products(self) -> Shape:
        """Factors of how many multiplications it does."""
        return (*self.shape[self.parts > 1 :], self.loops[0])

    def contract(self, a: Expr, b: Expr) -> Expr:
        """The sum over all turns of a * b; `a` has no column in it, and `b` no row."""
        held = DType.FP64 if a.dtype is DType.FP64 else DType.FP32
        kept = [_as_stored(factor) for factor in (a, b)]
        if all(factor.dtype is DType.BF16 for factor in kept):
            a, b = kept
        return self.node("dot", (a, b.astype(a.dtype)), held)
