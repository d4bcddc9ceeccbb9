"""Random number kernels: each element is drawn from an RNG key by its flat index."""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import Size
from compiler.ir.opdef import Value, Xp
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.philox import randint_by_key
from compiler.ir.types import Array, DType
from compiler.ops.math.cumsum import Cumsum

SORT_KEY_LIMIT = 2**63 - 1
"""Exclusive upper bound of the sort keys of a random permutation."""

_ERF = 0.9544997361036416
"""Probability that a normal number is within two standard deviations."""

_SERIES = (
    3.23560449e-05, 0.0001369086927, -0.002276274295, 0.002783922335, 0.2493075736, 1.179572845,
)  # fmt: skip


def truncated(xp: Xp, uniform: Value) -> Value:
    """Map uniform numbers in [0, 1) to normal numbers truncated at two standard deviations.

    The inverse of the normal CDF: erf⁻¹(y) = y · P(-log(1 - y²)), where P is a polynomial about the
    middle of its argument's range, fitted to 5e-9.
    """
    y = (uniform * 2.0 - (1.0 - 2.0**-24)) * _ERF
    middle = -xp.log((1.0 - y) * (1.0 + y)) - 1.2099514414455541
    slope = middle * -3.528154923e-07 - 4.593919242e-06
    for c in _SERIES:
        slope = slope * middle + c
    return y * slope * 1.4142135623730951


def permutation_by_key(Key: Array, place: int, count: int) -> Array:
    """Return the random permutation of 0 to count - 1 that a key determines: int64 [count]."""
    return np.argsort(randint_by_key(Key, place, [count], SORT_KEY_LIMIT), kind="stable")


# ---- kernels ------------------------------------------------------------------------------------


def _start(
    k: KernelBuilder, Key: DeviceOperand, place: int, out: DeviceOperand
) -> tuple[Number, Number]:
    """Start a kernel over the elements of `out`; return the key and the flat index."""
    (i,) = k.grid(out.type.numel)
    return k.key(Key, place), i


def _put(k: KernelBuilder, out: DeviceOperand, i: Number, value: Number) -> None:
    k.store(out.reshaped((out.type.numel,)), (i,), value)


def draw_uniform(
    k: KernelBuilder, Key: DeviceOperand, place: int, out: DeviceOperand, low: float, high: float,
    diagonal: tuple[int, int, float],
) -> None:  # fmt: skip
    """Emit a kernel for uniform numbers in [low, high); `diagonal` is (count, step, value)."""
    key, i = _start(k, Key, place, out)
    value = k.uniform(key, i, out.type.dtype) * (high - low) + low
    count, step, fixed = diagonal
    if count:
        value = k.where(k.equal(k.mod(i, step), 0) & (i < count * step), fixed, value)
    _put(k, out, i, value)


def draw_normal(
    k: KernelBuilder, Key: DeviceOperand, place: int, out: DeviceOperand, mean: float, std: float
) -> None:
    """Emit a kernel for normal numbers."""
    key, i = _start(k, Key, place, out)
    _put(k, out, i, k.normal(key, i, out.type.dtype) * std + mean)


def draw_truncated(
    k: KernelBuilder, Key: DeviceOperand, place: int, out: DeviceOperand, mean: float, std: float
) -> None:
    """Emit a kernel for normal numbers truncated at two standard deviations."""
    key, i = _start(k, Key, place, out)
    _put(k, out, i, truncated(k, k.uniform(key, i, out.type.dtype)) * std + mean)


def draw_integers(
    k: KernelBuilder, Key: DeviceOperand, place: int, out: DeviceOperand, low: int, high: int
) -> None:
    """Emit a kernel for uniform integers in [low, high)."""
    key, i = _start(k, Key, place, out)
    _put(k, out, i, k.randint(key, i, high - low) + low)


def draw_bernoulli(
    k: KernelBuilder, X: DeviceOperand, Key: DeviceOperand, place: int, out: DeviceOperand
) -> None:
    """Emit a kernel for Bernoulli samples: 1 with probability X, else 0."""
    key, i = _start(k, Key, place, out)
    dtype = X.type.dtype
    hit = k.uniform(key, i, dtype) < X.reshaped((X.type.numel,))[i]
    _put(k, out, i, k.astype(hit, dtype))


def draw_categorical(
    k: KernelBuilder, X: DeviceOperand, Key: DeviceOperand, place: int, out: DeviceOperand,
    low: float, high: float,
) -> None:  # fmt: skip
    """Emit kernels for the index where each row's cumulative weights exceed a random number."""
    rows, width = X.shape
    sums = k.scratch(X.shape, X.type.dtype)
    Cumsum({"axis": 1}).kernel(k, KernelSlots.of("cumsum", X=X, Out=sums))
    (i,) = k.grid(rows)
    r = k.loop(width)
    drawn = k.uniform(k.key(Key, place), i, X.type.dtype) * (high - low) + low
    passed = k.where(sums[i, r] > drawn, r, k.size(width) - 1)
    k.store(out.reshaped((rows,)), (i,), k.min(k.astype(passed, DType.INT32), r))


def draw_permutation(k: KernelBuilder, Key: DeviceOperand, place: int, out: DeviceOperand) -> None:
    """Emit kernels for a random permutation: indices sorted by random keys."""
    count: Size = out.type.numel
    drawn = k.scratch((count,), DType.INT64)
    (i,) = k.grid(count)
    k.store(drawn, (i,), k.randint(k.key(Key, place), i, SORT_KEY_LIMIT))
    if not k.on_gpu:
        order = k.scratch((count,), DType.INT64)
        k.sorting(0, False, drawn, k.scratch((count,), DType.INT64), order)
        (i,) = k.grid(count)
        k.store(out.reshaped((count,)), (i,), order[i])
        return
    (i,) = k.grid(count)
    r = k.loop(count)
    own, other = drawn[i], drawn[r]
    ahead = (other < own) | (k.equal(other, own) & (r < i))
    rank = k.sum(k.astype(ahead, DType.INT32), r)
    k.store(out.reshaped((count,)), (rank,), i)
