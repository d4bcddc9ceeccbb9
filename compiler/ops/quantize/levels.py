"""Arithmetic of quantization: scales, levels and rounding. Reference: fake_quantize_op.h.

A scale is the largest magnitude that has a level; levels are the integers from -n to n, where n is
2 ** (bits - 1) - 1. Functions of arrays are copied into generated modules; those that
take a `KernelBuilder` emit kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef.attribute_bounds import between
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import Array, TensorType
from compiler.ops.math.reduce import reduction_kernel
from compiler.ops.shared_kernels import copy, fill
from compiler.ops.type_checks import differ

BITS = between(1, 16)
"""Bits per level that the reference accepts."""


def level_count(bits: int) -> int:
    """Return the largest level for a number of bits.

    >>> level_count(8), level_count(1)
    (127, 0)
    """
    return 2 ** (bits - 1) - 1


def quantized(X: Array, scale: Array, bits: int) -> Array:
    """Return the level of each element; `scale` broadcasts, larger magnitudes are clipped.

    The reference adds 1e-6 to scales up to 1e-30 before it takes the reciprocal.
    """
    inverse = X.dtype.type(1) / np.where(scale <= 1e-30, scale + X.dtype.type(1e-6), scale)
    return np.rint(np.clip(X, -scale, scale) * (inverse * X.dtype.type(level_count(bits))))


def dequantized(X: Array, scale: Array, bits: int) -> Array:
    """Return the float of each level for one scale; NaN where 0 is the only level."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return X * (scale / X.dtype.type(level_count(bits)))


def largest(X: Array, axes: tuple[int, ...]) -> Array:
    """Return the largest magnitude over axes, kept with size 1; 0 if there are no elements."""
    return np.max(np.abs(X), axis=axes, keepdims=True, initial=0)


# ---- types -------------------------------------------------------------------------------------


def require_float(op: str, slot: str, type: TensorType) -> None:
    """Raise ShapeError unless a tensor holds floats."""
    if not type.dtype.is_float:
        raise ShapeError(f"{op}: {slot} is {type}, expected floats")


def require_count(op: str, slot: str, type: TensorType, count: Size) -> None:
    """Raise ShapeError unless a tensor has the expected number of elements."""
    if differ(type.numel, count):
        raise ShapeError(f"{op}: {slot} is {type}, expected {count} elements")


def require_scale(op: str, slot: str, type: TensorType, X: TensorType) -> None:
    """Raise ShapeError unless a tensor is one number in the dtype of X."""
    require_count(op, slot, type, 1)
    if type.dtype is not X.dtype:
        raise ShapeError(f"{op}: {slot} is {type}, expected the element type of X {X}")


# ---- kernels -----------------------------------------------------------------------------------


def start_abs_max(
    k: KernelBuilder, X: DeviceOperand, axes: tuple[int, ...]
) -> tuple[tuple[Number, ...], Number]:
    """Start a kernel for the largest magnitude over axes, 0 of no elements; return its indices, and
    the value.
    """
    iteration, whole, left = reduction_kernel(k, X.shape, axes)
    return left, k.maximum(k.max(k.absolute(X[whole]), iteration), 0.0)


def start_global_abs_max(k: KernelBuilder, X: DeviceOperand) -> Number:
    """Start a kernel for the largest magnitude of all elements."""
    flat = X.reshaped((product(X.shape),))
    return start_abs_max(k, flat, (0,))[1]


def level(k: KernelBuilder, x: Number, scale: Number, bits: int) -> Number:
    """Return `quantized` of one element."""
    inverse = 1.0 / k.where(scale <= 1e-30, scale + 1e-6, scale)
    return k.rint(k.minimum(k.maximum(x, -scale), scale) * (inverse * float(level_count(bits))))


def quantize_kernel(
    k: KernelBuilder,
    X: DeviceOperand,
    scale: DeviceOperand,
    bits: int,
    Out: DeviceOperand,
    dequantizes: bool = False,
) -> None:
    """Emit a kernel for the level of each element, or for the float of that level; one scale."""
    count = (product(X.shape),)
    (i,) = k.grid(*count)
    s = scale.reshaped((1,))[0]
    result = level(k, X.reshaped(count)[i], s, bits)
    if dequantizes:
        result = result * (s / float(level_count(bits)))
    k.store(Out.reshaped(count), (i,), result)


def copy_state(k: KernelBuilder, given: DeviceOperand | None, out: DeviceOperand | None) -> None:
    """Emit a kernel that copies state; 0 if there is none."""
    if out is not None and given is not None:
        copy(k, given, out)
    elif out is not None:
        fill(k, out, 0.0)


def scalars(k: KernelBuilder, *operands: DeviceOperand | None) -> Sequence[Number]:
    """Return the only element of each tensor; 0 for None."""
    return [0.0 if operand is None else operand.reshaped((1,))[0] for operand in operands]
