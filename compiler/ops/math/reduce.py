"""Reductions over axes: sum, mean, product, max, min, all and any.

A reduction over all axes has shape [1]: fluid has no 0-d tensors.
Reference: reduce_op.h, mean_op.cc, frobenius_norm_op.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, Types, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.layout_rules import Order, PermutedOp, permuted_axes
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.axes import identity_of
from compiler.ops.type_checks import require_dtype


def normalize_axes(rank: int, dim: list[int], reduce_all: bool) -> tuple[int, ...]:
    """Return the reduced axes, sorted: all axes if `reduce_all` is set or `dim` is empty.

    >>> normalize_axes(3, [-1, 0], False), normalize_axes(2, [0], True)
    ((0, 2), (0, 1))
    """
    chosen = tuple(sorted({axis % rank for axis in dim}))
    return tuple(range(rank)) if reduce_all or not dim else chosen


def element_type(code: int, like: Array) -> str:
    """Return the NumPy dtype name of a fluid dtype code; the dtype of `like` for -1."""
    names = {0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32"}
    names |= {6: "float64", 20: "uint8", 21: "int8", 22: "bfloat16"}
    return names.get(code, like.dtype.name)


def reduce_axes(ufunc: Any, X: Array, axes: Any, keep_dim: bool, out_dtype: int = -1) -> Array:
    """Reduce X with a ufunc over axes; the result has rank 1 or more."""
    dtype = element_type(out_dtype, X)
    more = {} if ufunc.identity is not None else {"initial": identity_of(ufunc, np.dtype(dtype))}
    return np.atleast_1d(ufunc.reduce(X, axis=axes, keepdims=keep_dim, dtype=dtype, **more))


def expand_reduced(values: Array, shape: Any, axes: Any) -> Array:
    """Reshape a reduced array to have size 1 in the reduced axes."""
    return values.reshape([1 if axis in axes else size for axis, size in enumerate(shape)])


def sum_gradient(values: Array, shape: Any, axes: Any, averages: bool) -> Array:
    """Broadcast the gradient of a sum to `shape`, divided by the element count for a mean."""
    whole = np.broadcast_to(expand_reduced(values, shape, axes), shape)
    return (
        whole / values.dtype.type(max(whole.size // max(values.size, 1), 1)) if averages else whole
    )


def sum_to_shape(values: Array, shape: Any) -> Array:
    """Sum over the broadcast axes, to reduce an array to `shape`."""
    if values.shape == tuple(shape):
        return values
    padded = (1,) * (values.ndim - len(shape)) + tuple(shape)
    pairs = enumerate(zip(values.shape, padded, strict=True))
    axes = tuple(axis for axis, (size, want) in pairs if want == 1 and size != 1)
    return values.sum(axis=axes, keepdims=True).reshape(shape)


def reduction_kernel(
    k: KernelBuilder, shape: Shape, axes: tuple[int, ...]
) -> tuple[Number, tuple[Number, ...], tuple[Number, ...]]:
    """Start a kernel over the non-reduced axes of a shape, with a loop over the reduced ones.

    Returns the loop index, the indices of the input element, and the indices of the output element,
    0 in the reduced axes.
    """
    program_indices = iter(k.grid(*(size for axis, size in enumerate(shape) if axis not in axes)))
    reduced_sizes = [shape[axis] for axis in axes]
    loop = k.loop(product(reduced_sizes))
    loop_indices = iter(k.unravel(loop, reduced_sizes))
    whole = tuple(
        next(loop_indices) if axis in axes else next(program_indices) for axis in range(len(shape))
    )
    return loop, whole, tuple(0 if a in axes else index for a, index in enumerate(whole))


def keepdims_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """Return the shape with size 1 in every reduced axis."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def sum_axes(k: KernelBuilder, X: DeviceOperand, axes: tuple[int, ...], Out: DeviceOperand) -> None:
    """Emit a kernel for Out = X summed over axes."""
    loop, whole, left = reduction_kernel(k, X.shape, axes)
    k.store(Out.reshaped(keepdims_shape(X.shape, axes)), left, k.sum(X[whole], loop))


def sum_to(
    k: KernelBuilder,
    whole: Shape,
    out: DeviceOperand,
    value: Callable[[tuple[Number, ...]], Number],
) -> None:
    """Emit a kernel that sums values over a shape into `out`, which broadcasts to that shape.

    `value` maps indices to a value; it is called inside the kernel.
    """
    padded = (*(1 for _ in range(len(whole) - len(out.shape))), *out.shape)
    pairs = enumerate(zip(whole, padded, strict=True))
    axes = tuple(axis for axis, (size, target) in pairs if target == 1 and size != 1)
    if not axes:
        indices = k.grid(*whole)
        k.store(out.reshaped(whole), indices, value(indices))
        return
    loop, indices, left = reduction_kernel(k, whole, axes)
    k.store(out.reshaped(padded), left, k.sum(value(indices), loop))


class Reduction(OpDef):
    """A reduction of X over axes."""

    X = reads()
    Out = writes()

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the reduced axes: all of them by default."""
        return tuple(range(rank))

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        whole = len(self.axes(len(order))) == len(order)
        return PermutedOp(frozenset({"X"})) if whole else None

    def spread(self, X: Shape) -> Shape:
        """Return the shape of Out with size 1 in every reduced axis."""
        return keepdims_shape(X, self.axes(len(X)))

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        axes = self.axes(X.rank)
        return X.with_shape([size for a, size in enumerate(X.shape) if a not in axes] or [1])


class UfuncReduction(Reduction):
    """A reduction of X by the NumPy ufunc `ufunc`, divided by the element count if `averages`."""

    ufunc: ClassVar[str] = "add"
    averages: ClassVar[bool] = False

    def count(self, X: Shape) -> Size:
        """Return the number of elements of X reduced to one of Out."""
        return product(X[axis] for axis in self.axes(len(X)))

    def accumulator(self, dtype: DType) -> DType:
        """Return the type in which results of a type are accumulated."""
        return dtype

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Out = s.X, s.Out
        axes = self.axes(X.type.rank)
        if len(axes) == X.type.rank:
            source, axis, target = X.view((X.type.numel,)), "0", Out.view((1,))
        else:
            source, axis, target = str(X), str(axes), Out.view(self.spread(X.shape))
        options = f"axis={axis}, keepdims=True, out={target}"
        wide = self.accumulator(Out.type.dtype)
        if wide is not X.type.dtype:
            options += f", dtype=np.{wide.numpy.name}"
        count, ufunc = self.count(X.shape), getattr(np, self.ufunc)
        if ufunc.identity is None and (not isinstance(count, int) or count == 0):
            options += f", initial={identity_of(ufunc, wide.numpy)}"
        k.line(f"np.{self.ufunc}.reduce({source}, {options})")
        if self.averages:
            divide = f"np.divide({Out}, {self.divisor(k, X.shape, Out)}, out={Out}"
            k.line(divide + ("" if Out.type.dtype.is_float else ", casting='unsafe'") + ")")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Out = s.X, s.Out
        loop, whole, left = reduction_kernel(k, X.shape, self.axes(X.type.rank))
        value, wide = X[whole], self.accumulator(Out.type.dtype)
        if wide is not X.type.dtype:
            value = k.astype(value, wide)
        folds = {
            "add": k.sum, "multiply": k.prod, "maximum": k.max, "minimum": k.min,
            "logical_and": k.min, "logical_or": k.max,
        }  # fmt: skip
        result = folds[self.ufunc](value, loop)
        if self.averages:
            count = k.astype(k.size(self.count(X.shape)), Out.type.dtype)
            result = k.astype(result / count, Out.type.dtype)
        result = result if wide is Out.type.dtype else k.astype(result, Out.type.dtype)
        k.store(Out.reshaped(self.spread(X.shape)), left, result)

    def divisor(self, k: SourceBuilder, X: Shape, like: Operand) -> str:
        """Return the count as a one-element array: NumPy divides faster by it than by a number."""
        dtype = like.type.dtype.numpy.name
        return k.at_bind(f"np.full(1, {self.count(X)}, np.{dtype})", [], "count")


class Summation(UfuncReduction):
    """A sum or mean of X; its gradient broadcasts Out@GRAD."""

    linear_in = (("X",),)

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        d_Out, d_X = s.d_Out, s.d_X
        whole = d_Out.type.numel == 1
        share = str(d_Out) if whole else d_Out.view(self.spread(d_X.shape))
        if self.averages:
            k.line(f"np.divide({share}, {self.divisor(k, d_X.shape, d_X)}, out={d_X})")
        else:
            k.line(f"np.copyto({d_X}, {share})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        axes = self.axes(d_X.type.rank)
        whole = k.grid(*d_X.shape)
        left = tuple(0 if axis in axes else index for axis, index in enumerate(whole))
        share = s.d_Out.reshaped(self.spread(d_X.shape))[left]
        count = k.astype(k.size(self.count(d_X.shape)), d_X.type.dtype)
        k.store(d_X, whole, share / count if self.averages else share)


class Mean(Summation, op="mean"):
    """Out = the mean of all elements of X, of shape [1]."""

    averages = True
    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_dtype(self.kind, "X", s.X, DType.FP32, DType.FP64, DType.FP16, DType.BF16)
        return super().infer(s)

    def numpy(self, X: Array) -> Array:
        return X.mean(keepdims=True).reshape(1)

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": sum_gradient(d_Out, X, range(len(X)), True)}


class AxisReduction(Reduction):
    """A reduction over the axes `dim`, or over all if `reduce_all` is set.

    Reduced axes are kept with size 1 if `keep_dim`; Out has the dtype `out_dtype` unless that is
    negative.
    """

    dim = attr([0])
    keep_dim = attr(False)
    reduce_all = attr(False)
    in_dtype = attr(-1)
    out_dtype = attr(-1)

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the reduced axes; raise ShapeError if one is out of range."""
        if any(not -rank <= axis < rank for axis in self.dim):
            raise ShapeError(f"{self.kind}: dim {self.dim} is out of range for X of rank {rank}")
        return normalize_axes(rank, self.dim, self.reduce_all)

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Permute the reduced axes; not applicable if the kept axes would be reordered."""
        removed = normalize_axes(len(order), self.dim, self.reduce_all)
        remaining = [axis for axis in order if axis not in removed]
        slots = {"X", "Out"} if self.keep_dim else {"X"}
        fits = self.keep_dim or remaining == sorted(remaining)
        return (
            PermutedOp(frozenset(slots), {"dim": permuted_axes(self.dim, order)}) if fits else None
        )

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        result = super().infer(s)
        if self.keep_dim:
            result = X.with_shape(self.spread(X.shape))
        return result if self.out_dtype < 0 else result.with_dtype(DType.of(self.out_dtype))


class ReduceSum(AxisReduction, Summation, op="reduce_sum"):
    """Out = X summed over axes."""

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        return reduce_axes(np.add, X, axes, self.keep_dim, self.out_dtype)

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        axes = normalize_axes(len(X), self.dim, self.reduce_all)
        return {"X": sum_gradient(d_Out, X, axes, False)}


class ReduceMean(AxisReduction, Summation, op="reduce_mean"):
    """Out = X averaged over axes; integers are truncated towards zero."""

    averages = True

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        total = reduce_axes(np.add, X, axes, self.keep_dim, self.out_dtype)
        return (total / total.dtype.type(X.size // max(total.size, 1))).astype(total.dtype)

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        axes = normalize_axes(len(X), self.dim, self.reduce_all)
        return {"X": sum_gradient(d_Out, X, axes, True)}


class MinMaxReduction(AxisReduction, UfuncReduction):
    """A maximum or minimum over axes; at ties every equal element receives the gradient."""

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        chosen = np.equal(X, expand_reduced(Out, X.shape, axes))
        return {"X": expand_reduced(d_Out, X.shape, axes) * chosen}

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        axes, whole = self.axes(X.type.rank), k.grid(*X.shape)
        left = tuple(0 if axis in axes else index for axis, index in enumerate(whole))
        extreme, upstream = (
            operand.reshaped(self.spread(X.shape))[left] for operand in (s.Out, s.d_Out)
        )
        k.store(s.d_X, whole, k.where(k.equal(X[whole], extreme), upstream, 0))


class ReduceMax(MinMaxReduction, op="reduce_max"):
    """Out = the maximum of X over axes."""

    ufunc = "maximum"

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        return reduce_axes(np.maximum, X, axes, self.keep_dim, self.out_dtype)


class ReduceMin(MinMaxReduction, op="reduce_min"):
    """Out = the minimum of X over axes."""

    ufunc = "minimum"

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        return reduce_axes(np.minimum, X, axes, self.keep_dim, self.out_dtype)


def product_gradient(X: Array, d_Out: Array, axes: Any) -> Array:
    """Return the gradient of a product: d_Out times the product of the other elements.

    That is the product of the elements but zeros, in float64, divided by the element; 0 if another
    element is zero.
    """
    is_zero = X == 0
    factors = np.where(is_zero, 1.0, X.astype(np.float64))
    whole = np.multiply.reduce(factors, axis=axes, keepdims=True)
    alone = is_zero.sum(axis=axes, keepdims=True) == is_zero
    others = np.where(alone, whole / factors, 0.0)
    return (expand_reduced(d_Out, X.shape, axes) * others).astype(X.dtype)


class ReduceProd(AxisReduction, UfuncReduction, op="reduce_prod"):
    """Out = the product of X over axes.

    An element's gradient is the product of the others, which is also right for 0; the reference
    divides by the element, and yields NaN there.
    """

    ufunc = "multiply"

    def accumulator(self, dtype: DType) -> DType:
        """Return float64 for floats: errors of a million factors add up, and parts overflow."""
        return DType.FP64 if dtype.is_float else dtype

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        dtype = element_type(self.out_dtype, X)
        wide = "float64" if "float" in dtype else dtype
        reduced = np.multiply.reduce(X, axis=axes, keepdims=self.keep_dim, dtype=wide)
        return np.atleast_1d(reduced).astype(dtype)

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        return {"X": product_gradient(X, d_Out, axes)}

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        axes, spread = self.axes(X.type.rank), self.spread(X.shape)
        whole, zeros = k.scratch(spread, DType.FP64), k.scratch(spread, DType.INT32)
        loop, at, left = reduction_kernel(k, X.shape, axes)
        k.store(whole, left, k.prod(_factor(k, X[at]), loop))
        k.store(zeros, left, k.sum(k.astype(k.equal(X[at], 0), DType.INT32), loop))
        at = k.grid(*X.shape)
        left = tuple(0 if axis in axes else index for axis, index in enumerate(at))
        alone = k.equal(zeros[left], k.astype(k.equal(X[at], 0), DType.INT32))
        others = k.where(alone, whole[left] / _factor(k, X[at]), 0.0)
        upstream = k.astype(s.d_Out.reshaped(spread)[left], DType.FP64)
        k.store(s.d_X, at, k.astype(upstream * others, s.d_X.type.dtype))


def _factor(k: KernelBuilder, value: Number) -> Number:
    """Return a value in float64, or 1 if it is zero."""
    return k.where(k.equal(value, 0), 1.0, k.astype(value, DType.FP64))
