"""Float arithmetic with exactly one rounding, in every rounding mode of PTX."""

from __future__ import annotations

import numpy as np

from tools.ptx.exact import by_fractions
from tools.ptx.group import Value, array, choose


def flushed(value: Value) -> Value:
    """`.ftz`: subnormal numbers become zero with their sign."""
    small = np.abs(value) < np.finfo(value.dtype).tiny
    return choose(small, np.copysign(value.dtype.type(0), value), value)


def clamped(value: Value) -> Value:
    """`.sat`: a number from 0 to 1; NaN becomes 0."""
    zero, one = value.dtype.type(0), value.dtype.type(1)
    clipped = np.minimum(np.maximum(choose(np.isnan(value), zero, value), zero), one)
    return clipped + zero


def positive(value: Value) -> Value:
    """`.relu`: zero instead of what is negative."""
    return choose(value < 0, value.dtype.type(0), value)


def to_odd(total: Value, error: Value) -> Value:
    """A float64 sum rounded to odd, from the nearest sum and its error.

    Rounding it again to fewer bits gives the result of one rounding.
    """
    bits = array(total).view("i8")
    wrong = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    step = choose((error > 0) == (array(total) > 0), 1, -1)
    step = choose(array(total) == 0, 0, step)
    return (bits + choose(wrong, step, 0)).view("f8")


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """The nearest sum of two float64, and its error."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    return total, choose(np.isfinite(total), error, 0.0)


def odd_sum(a: Value, b: Value) -> Value:
    """A sum of two numbers in float64, rounded to odd."""
    return to_odd(*two_sum(a.astype("f8"), b.astype("f8")))


def odd_fma(a: Value, b: Value, c: Value) -> Value:
    """a·b + c of numbers of at most 24 bits, in float64, rounded to odd."""
    return odd_sum(a.astype("f8") * b.astype("f8"), c)


def sum_down(exact: Value, a: Value, b: Value) -> Value:
    """The sum `exact` of a and b for rounding down: 0 is negative unless both are +0."""
    sign = choose(np.signbit(a) | np.signbit(b), -1.0, 1.0)
    return choose(exact == 0, np.copysign(exact, sign), exact)


def rounded(exact: Value, kind: str, mode: str) -> Value:
    """A float64 that is exact or rounded to odd, as a narrower type."""
    return directed(exact.astype(kind), exact, mode)


def directed(nearest: Value, exact: Value, mode: str) -> Value:
    """The neighbour that a mode asks for (rn, rz, rm, rp), given the nearest number."""
    if mode == "rn":
        return nearest
    kind = nearest.dtype
    back = nearest.astype(exact.dtype)
    over, under = back > exact, back < exact
    down, up = np.nextafter(nearest, kind.type(-np.inf)), np.nextafter(nearest, kind.type(np.inf))
    if mode == "rm":
        return choose(over, down, nearest)
    if mode == "rp":
        return choose(under, up, nearest)
    inward = choose(exact > 0, down, up)
    return choose(choose(exact > 0, over, under), inward, nearest)


def fma32(a: Value, b: Value, c: Value, mode: str = "rn") -> Value:
    """a·b + c in float32 with one rounding."""
    product = a.astype("f8") * b.astype("f8")
    if mode == "rn":
        total = product + c
        if not _may_be_rounded_twice(total).any():
            return total.astype("f4")
    exact = odd_sum(product, c)
    if mode == "rm":
        exact = sum_down(exact, product, c)
    return rounded(exact, "f4", mode)


def _may_be_rounded_twice(total: Value) -> Value:
    """Where the float32 nearest to a sum may not be that nearest to its rounded float64.

    That is half-way between two float32, and among subnormal numbers.
    """
    half_way = array(total).view("i8") & 0x1FFFFFFF == 0x10000000
    return half_way | ((np.abs(total) < np.finfo("f4").tiny) & (total != 0))


def fma64(a: Value, b: Value, c: Value, mode: str = "rn") -> Value:
    """a·b + c in float64 with one rounding (Boldo and Melquiond); rare cases by fractions."""
    if mode != "rn":
        return by_fractions("fma", mode, a, b, c)
    product, low = _two_product(a, b)
    first, first_error = two_sum(c, low)
    second, second_error = two_sum(product, first)
    result = second + to_odd(*two_sum(first_error, second_error))
    result = choose(result == 0, a * b + c, result)
    safe = _moderate(a) & _moderate(b) & _moderate(c) & _moderate(result)
    return result if np.all(safe) else _repaired(result, safe, a, b, c)


def _moderate(value: Value) -> Value:
    size = np.abs(value)
    return ((size < 2.0**400) & (size > 2.0**-400)) | (value == 0)


def _repaired(result: Value, safe: Value, a: Value, b: Value, c: Value) -> Value:
    """The result with the lanes that are not safe computed exactly."""
    fixed = np.array(np.broadcast_arrays(result, a, b, c)[0])
    wrong = np.broadcast_to(~safe, fixed.shape)
    finite = np.isfinite(a) & np.isfinite(b)  # a product too large is finite beside infinity
    plain = np.broadcast_to(choose(finite, c, a * b + c), fixed.shape)
    special = wrong & ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    fixed[special] = plain[special]
    rest = wrong & ~special
    parts = [np.broadcast_to(operand, fixed.shape)[rest] for operand in (a, b, c)]
    fixed[rest] = by_fractions("fma", "rn", *parts)
    return fixed[()]


def _two_product(a: Value, b: Value) -> tuple[Value, Value]:
    product = a * b
    a1, a0 = _split(a)
    b1, b0 = _split(b)
    return product, ((a1 * b1 - product) + a1 * b0 + a0 * b1) + a0 * b0


def _split(a: Value) -> tuple[Value, Value]:
    large = a * np.float64(134217729.0)
    upper = large - (large - a)
    return upper, a - upper


def from_bfloat(bits: Value) -> Value:
    """The float32 that bits of a bfloat16 mean."""
    return (bits.astype("u4") << np.uint32(16)).view("f4")


def to_bfloat(value: Value, mode: str = "rn") -> Value:
    """The bits of a float32 or float64 rounded to bfloat16; NaN becomes 0x7FFF.

    A float64 is rounded to odd first, so that it is rounded once.
    """
    single = _odd_single(value) if value.dtype == np.float64 else value
    bits = array(single).view("u4")
    even = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    add = {"rn": even, "rz": np.uint32(0), "rna": np.uint32(0x8000)}[mode]
    result = ((bits + add) >> np.uint32(16)).astype("u2")
    return choose(np.isnan(single), np.uint16(0x7FFF), result)


def _odd_single(value: Value) -> Value:
    """A float64 as float32, rounded to odd."""
    cut = rounded(value, "f4", "rz")
    bits = array(cut).view("u4")
    inexact = (cut.astype("f8") != value) & np.isfinite(value)
    return (bits | inexact.astype("u4")).view("f4")


def to_tf32(value: Value, mode: str) -> Value:
    """The bits of a float32 rounded to 10 bits of mantissa (rna: ties away from zero)."""
    bits = array(value).view("u4")
    even = ((bits >> np.uint32(13)) & np.uint32(1)) + np.uint32(0xFFF)
    add = {"rna": np.uint32(0x1000), "rn": even, "rz": np.uint32(0)}[mode]
    rounded_bits = (bits + add) & np.uint32(0xFFFFE000)
    return choose(
        np.isnan(value), np.uint32(0x7FFFFFFF), choose(np.isinf(value), bits, rounded_bits)
    )


def smallest(a: Value, b: Value, nan: bool) -> Value:
    """The smaller number; NaN loses, or wins with `nan`. −0 is smaller than +0."""
    return _extreme(a, b, (a < b) | ((a == b) & np.signbit(a)), nan)


def largest(a: Value, b: Value, nan: bool) -> Value:
    """The larger number; NaN loses, or wins with `nan`. +0 is larger than −0."""
    return _extreme(a, b, (a > b) | ((a == b) & ~np.signbit(a)), nan)


def _extreme(a: Value, b: Value, first: Value, nan: bool) -> Value:
    """A where `first` holds, else b; NaN, signalling or not, as `nan` says."""
    picked = choose(first, a, b)
    if nan:
        return choose(np.isnan(a), a, choose(np.isnan(b), b, picked))
    return choose(np.isnan(a), b, choose(np.isnan(b), a, picked))


def to_integer(value: Value, kind: str, mode: str) -> Value:
    """A float rounded to an integer (rni, rzi, rmi, rpi), clamped; NaN becomes 0.

    From float64, or to 64 bits, NaN becomes the uppermost bit alone.
    """
    info = np.iinfo(kind)
    whole = ROUND[mode](value.astype("f8"))
    top = whole >= 2.0 ** (info.bits - (info.min < 0))
    inside = choose(top | np.isnan(whole) | (whole < info.min), 0.0, whole)
    result = inside.astype(kind)
    result = choose(top, np.array(info.max, kind), result)
    result = choose(whole < info.min, np.array(info.min, kind), result)
    wide = value.dtype == np.float64 or info.bits == 64
    none = np.array(1 << (info.bits - 1), f"u{info.bits // 8}").view(kind) if wide else 0
    return choose(np.isnan(value), np.array(none, kind), result)


ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
"""How a float becomes whole, by modifier."""


def from_integer(value: Value, kind: str, mode: str) -> Value:
    """An integer as a float, rounded once."""
    nearest = value.astype(kind)
    return nearest if mode == "rn" else directed(nearest, value.astype(np.longdouble), mode)
