"""Traces an op's body symbolically, recording the expression it computes.

A body is written once against a NumPy namespace: `xp.maximum(X, 0.0)`. Called with a `Tracer` as
`xp` and `Expr`s as inputs, it returns an `Expr`: a DAG (equal parts are one object) of NumPy calls
with the shape and element type of each part, which code generators lower.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from compiler.errors import CompileError
from compiler.ir.dims import Size
from compiler.ir.opdef import broadcast
from compiler.ir.types import DType, Shape

Scalar: TypeAlias = "bool | int | float"
Term: TypeAlias = "Expr | Scalar"

ELEMENTWISE = frozenset(
    "less less_equal greater greater_equal equal not_equal logical_and logical_or logical_xor "
    "logical_not isfinite isnan isinf "
    "add subtract multiply divide floor_divide remainder power maximum minimum negative absolute "
    "exp expm1 log log1p log2 log10 sqrt square reciprocal tanh sin cos tan arcsin arccos arctan "
    "sinh cosh sign floor ceil rint trunc fmod arctan2".split()
)
"""Elementwise NumPy functions that take `out=`."""

ALIASES = {"abs": "absolute", "round": "rint", "mod": "remainder", "true_divide": "divide"}
REDUCTIONS = {"sum": "add", "max": "maximum", "min": "minimum"}
"""Reductions, and the binary function each one folds."""


BY_KEY = "uniform_by_key"
"""The traced function that draws uniform numbers from a key and each element's index."""


class Expr:
    """An expression node, a leaf (a named array) or a call, with shape and element type."""

    __slots__ = ("args", "dtype", "extra", "fn", "shape", "tracer")
    __array_ufunc__ = None
    """Keeps NumPy scalars from overriding the operators."""

    def __init__(
        self,
        tracer: Tracer,
        fn: str,
        args: tuple[Term, ...],
        shape: Shape,
        dtype: DType,
        extra: Hashable = None,
    ) -> None:
        self.tracer = tracer
        self.fn = fn
        self.args = args
        self.shape = shape
        self.dtype = dtype
        self.extra = extra

    @property
    def is_leaf(self) -> bool:
        """True for an input."""
        return self.fn == "leaf"

    def parts(self) -> list[Expr]:
        """The arguments that are expressions."""
        return [arg for arg in self.args if isinstance(arg, Expr)]

    def astype(self, dtype: Any) -> Expr:
        """Cast to another element type."""
        return self.tracer.cast(self, DType.of(dtype))

    def __add__(self, other: Term) -> Expr:
        return self.tracer.call("add", self, other)

    def __radd__(self, other: Term) -> Expr:
        return self.tracer.call("add", other, self)

    def __sub__(self, other: Term) -> Expr:
        return self.tracer.call("subtract", self, other)

    def __rsub__(self, other: Term) -> Expr:
        return self.tracer.call("subtract", other, self)

    def __mul__(self, other: Term) -> Expr:
        return self.tracer.call("multiply", self, other)

    def __rmul__(self, other: Term) -> Expr:
        return self.tracer.call("multiply", other, self)

    def __truediv__(self, other: Term) -> Expr:
        return self.tracer.call("divide", self, other)

    def __rtruediv__(self, other: Term) -> Expr:
        return self.tracer.call("divide", other, self)

    def __pow__(self, other: Term) -> Expr:
        return self.tracer.call("power", self, other)

    def __rpow__(self, other: Term) -> Expr:
        return self.tracer.call("power", other, self)

    def __neg__(self) -> Expr:
        return self.tracer.call("negative", self)

    def __lt__(self, other: Term) -> Expr:
        return self.tracer.call("less", self, other)

    def __le__(self, other: Term) -> Expr:
        return self.tracer.call("less_equal", self, other)

    def __gt__(self, other: Term) -> Expr:
        return self.tracer.call("greater", self, other)

    def __ge__(self, other: Term) -> Expr:
        return self.tracer.call("greater_equal", self, other)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise TypeError("a pointwise body compares with ==; write xp.equal(X, Y)")

    __hash__ = object.__hash__

    def __and__(self, other: Term) -> Expr:
        return self.tracer.call("logical_and", self, other)

    def __or__(self, other: Term) -> Expr:
        return self.tracer.call("logical_or", self, other)

    def __invert__(self) -> Expr:
        return self.tracer.call("logical_not", self)


class Tracer:
    """The namespace passed as `numpy` while tracing; equal calls return the same `Expr`."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Expr] = {}

    def leaf(self, name: Hashable, shape: Shape, dtype: DType) -> Expr:
        """Create an input, identified by `name`."""
        return self._node("leaf", (), shape, dtype, name)

    def call(self, fn: str, *args: Any) -> Any:
        """Trace an elementwise function; with only numbers as arguments, evaluate it."""
        shapes = [arg.shape for arg in args if isinstance(arg, Expr)]
        if not shapes:
            return getattr(np, fn)(*args).item()
        return self._node(fn, args, broadcast(fn, shapes), _result_dtype(fn, args))

    def where(self, condition: Term, a: Term, b: Term) -> Any:
        """`a` where the condition holds, else `b`."""
        shapes = [arg.shape for arg in (condition, a, b) if isinstance(arg, Expr)]
        if not shapes:
            return a if condition else b
        return self._node("where", (condition, a, b), broadcast("where", shapes), _promoted((a, b)))

    def astype(self, x: Expr, dtype: Any) -> Expr:
        """Cast `x` to another element type."""
        return x.astype(dtype)

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """Cast `x`, or return it unchanged if it has the type already."""
        return x if x.dtype is dtype else self._node("astype", (x,), x.shape, dtype)

    def zeros_like(self, x: Expr) -> Expr:
        """Zeros in the shape and element type of `x`, whose data is not read."""
        return self.full(0, x.shape, x.dtype)

    def full(self, value: Scalar, shape: Shape, dtype: DType) -> Expr:
        """A constant in every element."""
        return self._node("full", (value,), shape, dtype)

    def uniform_by_key(self, Key: Expr, place: int, sizes: Shape) -> Expr:
        """Uniform float32 numbers in [0, 1), as `compiler.ir.philox` generates them."""
        return self._node(BY_KEY, (Key,), tuple(sizes), DType.FP32, place)

    def clip(self, x: Expr, low: Term, high: Term) -> Expr:
        """Clamp `x` to [low, high]."""
        return self.call("minimum", self.call("maximum", x, low), high)

    def mean(self, x: Expr, axis: int | tuple[int, ...], keepdims: bool = True) -> Expr:
        """The mean over axes of known size."""
        total = self.reduce("sum", x, axis, keepdims)
        count = 1
        for size, reduced in zip(x.shape, total.shape, strict=True):
            count *= 1 if size == reduced else _known(size)
        return total * (1.0 / count)

    def reduce(self, fn: str, x: Expr, axis: int | tuple[int, ...], keepdims: bool = False) -> Expr:
        """Trace a reduction that keeps the reduced axes as size 1.

        Trailing axes are reduced first: they are contiguous, and the remaining result is small.
        """
        if not keepdims:
            raise CompileError(f"a rowwise body calls {fn} without keepdims=True")
        rank = len(x.shape)
        axes = sorted({a % rank for a in (axis if isinstance(axis, tuple) else (axis,))})
        trailing = [a for i, a in enumerate(axes) if axes[i:] == list(range(a, rank))]
        rest = [a for a in axes if a not in trailing]
        return self._reduce(fn, self._reduce(fn, x, trailing), rest)

    def _reduce(self, fn: str, x: Expr, axes: list[int]) -> Expr:
        if not axes:
            return x
        shape = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
        return self._node("reduce_" + fn, (x,), shape, x.dtype, tuple(axes))

    def __getattr__(self, name: str) -> Callable[..., Expr]:
        """Return any elementwise function or reduction of NumPy, by name."""
        fn = ALIASES.get(name, name)
        if fn in ELEMENTWISE:
            return partial(self.call, fn)
        if fn in REDUCTIONS:
            return partial(self.reduce, fn)
        raise AttributeError(
            f"pointwise bodies cannot use numpy.{name}: tracing does not support it"
        )

    def _node(
        self, fn: str, args: tuple[Any, ...], shape: Shape, dtype: DType, extra: Hashable = None
    ) -> Expr:
        key = (fn, tuple(map(_identity, args)), shape, dtype, extra)
        if key not in self._known:
            self._known[key] = Expr(self, fn, args, shape, dtype, extra)
        return self._known[key]


def ordered(
    root: Expr, known: Container[Expr] = (), below: Callable[[Expr], Sequence[Expr]] = Expr.parts
) -> list[Expr]:
    """Sort the nodes of an expression topologically, operands (those `below` it) first.

    Operands needed only by known nodes are omitted.
    """
    return _sorted([root], known, below)


def all_parts(
    roots: Iterable[Expr], below: Callable[[Expr], Sequence[Expr]] = Expr.parts
) -> list[Expr]:
    """All nodes of some expressions, each once, in topological order, as in `ordered`."""
    return _sorted(roots, (), below)


def _sorted(
    roots: Iterable[Expr], known: Container[Expr], below: Callable[[Expr], Sequence[Expr]]
) -> list[Expr]:
    order: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(root, False) for root in roots]
    stack.reverse()
    while stack:
        part, seen = stack.pop()
        if part in order or part in known:
            continue
        if seen:
            order[part] = None
        else:
            stack.append((part, True))
            stack += [(arg, False) for arg in reversed(below(part))]
    return list(order)


def _identity(arg: Any) -> Hashable:
    """A key that compares expressions by identity, and keeps 1, 1.0 and True apart."""
    return ("expr", id(arg)) if isinstance(arg, Expr) else (type(arg).__name__, repr(arg))


def _result_dtype(fn: str, args: tuple[Any, ...]) -> DType:
    """The result dtype of a NumPy function: integers divide to floats, comparisons yield bool."""
    operands: list[Any] = [a.dtype.numpy if isinstance(a, Expr) else type(a) for a in args]
    return DType.of(getattr(np, fn).resolve_dtypes((*operands, None))[-1])


def _promoted(args: tuple[Any, ...]) -> DType:
    """The dtype NumPy promotes the arguments to; Python numbers adapt to the arrays."""
    types = [arg.dtype.numpy if isinstance(arg, Expr) else arg for arg in args]
    return DType.of(np.result_type(*types))


def _known(size: Size) -> int:
    if not isinstance(size, int):
        raise CompileError(f"a rowwise body computes the mean over an axis of symbolic size {size}")
    return size
