"""Integer arithmetic as PTX defines it, on arrays or scalars of NumPy integers."""

from __future__ import annotations

import numpy as np

from tools.ptx.group import Value, choose


def _width(value: Value) -> int:
    return value.dtype.itemsize * 8


def _unsigned(value: Value) -> Value:
    return value.view(f"u{value.dtype.itemsize}")


def divide(a: Value, b: Value) -> Value:
    """The quotient, rounded toward zero; by zero, all bits are set."""
    zero = b == 0
    if a.dtype.kind == "u":
        return choose(zero, ~np.zeros_like(a), a // choose(zero, b.dtype.type(1), b))
    quotient = _magnitude(a) // choose(zero, 1, _magnitude(b)).astype(_unsigned(b).dtype)
    signed = choose((a < 0) != (b < 0), -quotient.view(a.dtype), quotient.view(a.dtype))
    return choose(zero, a.dtype.type(-1), signed)


def _magnitude(a: Value) -> Value:
    u = _unsigned(a)
    return choose(a < 0, ~u + u.dtype.type(1), u)


def remainder(a: Value, b: Value) -> Value:
    """What a division leaves, with the sign of the dividend; the dividend for a divisor of zero."""
    return choose(b == 0, a, a - divide(a, b) * b)


def shift_left(a: Value, n: Value) -> Value:
    """Shift; by the width or more, zero."""
    width = _width(a)
    moved = a << np.minimum(n, width - 1).astype(a.dtype)
    return choose(n >= width, a.dtype.type(0), moved)


def shift_right(a: Value, n: Value) -> Value:
    """Shift; by the width or more, all bits are the sign or zero."""
    width = _width(a)
    moved = a >> np.minimum(n, width - 1).astype(a.dtype)
    return choose(n >= width, a.dtype.type(0), moved) if a.dtype.kind == "u" else moved


def wide(a: Value, b: Value) -> Value:
    """The whole product, twice as wide."""
    kind = f"{a.dtype.kind}{2 * a.dtype.itemsize}"
    return a.astype(kind) * b.astype(kind)


def high(a: Value, b: Value) -> Value:
    """The upper half of the product."""
    if a.dtype.itemsize < 8:
        return (wide(a, b) >> wide(a, b).dtype.type(_width(a))).astype(a.dtype)
    product = _high_unsigned(_unsigned(a), _unsigned(b))
    if a.dtype.kind == "u":
        return product
    signed = product.view("i8")
    zero = np.int64(0)
    return signed - choose(a < 0, b, zero) - choose(b < 0, a, zero)


def _high_unsigned(a: Value, b: Value) -> Value:
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    first = a1 * b0 + ((a0 * b0) >> half)
    second = a0 * b1 + (first & low)
    return a1 * b1 + (first >> half) + (second >> half)


def extract(a: Value, start: Value, count: Value) -> Value:
    """bfe: bits from `start`; a signed type repeats the field's uppermost bit."""
    width = _width(a)
    start, count = (start & np.uint32(255)).astype("i8"), (count & np.uint32(255)).astype("i8")
    u = _unsigned(a)
    field = shift_right(u, start) & _ones(count, u)
    if a.dtype.kind == "u":
        return field
    top = np.minimum(start + count - 1, width - 1)
    sign = (shift_right(u, top) & u.dtype.type(1)) != 0
    length = np.clip(width - start, 0, count)
    return choose(sign & (count > 0), field | ~_ones(length, u), field).view(a.dtype)


def insert(a: Value, b: Value, start: Value, count: Value) -> Value:
    """bfi: the lowest bits of `a` into `b`."""
    start, count = (start & np.uint32(255)).astype("i8"), (count & np.uint32(255)).astype("i8")
    mask = shift_left(_ones(count, b), start)
    return (b & ~mask) | (shift_left(a, start) & mask)


def _ones(count: Value, like: Value) -> Value:
    """As many ones from the lowest bit on."""
    one = like.dtype.type(1)
    return shift_left(np.broadcast_to(one, np.shape(count)), count) - one


def permute(a: Value, b: Value, selector: Value, mode: str = "") -> Value:
    """prmt: four bytes out of the eight of `b:a`."""
    value = a.astype("u8") | (b.astype("u8") << np.uint64(32))
    result = np.uint32(0)
    for place in range(4):
        pick = _pick(selector, place, mode)
        byte = (value >> ((pick & np.uint32(7)).astype("u8") * np.uint64(8))) & np.uint64(255)
        sign = choose(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        byte = choose(pick & np.uint32(8), sign, byte)
        result = result | (byte.astype("u4") << np.uint32(8 * place))
    return result


def _pick(selector: Value, place: int, mode: str) -> Value:
    """The byte that goes to a place."""
    if not mode:
        return (selector >> np.uint32(4 * place)) & np.uint32(15)
    n = selector & np.uint32(3)
    by_mode = {
        "f4e": n + np.uint32(place),
        "b4e": (n - np.uint32(place)) & np.uint32(7),
        "rc8": n,
        "ecl": np.maximum(n, np.uint32(place)),
        "ecr": np.minimum(n, np.uint32(place)),
        "rc16": (n & np.uint32(1)) * np.uint32(2) + np.uint32(place & 1),
    }
    return by_mode[mode]


def funnel(a: Value, b: Value, n: Value, left: bool, clamp: bool) -> Value:
    """shf: 32 bits of `b:a`, shifted."""
    n = (np.minimum(n, 32) if clamp else n & np.uint32(31)).astype("u8")
    value = a.astype("u8") | (b.astype("u8") << np.uint64(32))
    moved = (value << n) >> np.uint64(32) if left else value >> n
    return moved.astype("u4")


def logic3(a: Value, b: Value, c: Value, table: int) -> Value:
    """lop3: any function of three bits, by its truth table."""
    result = a & np.uint32(0)
    for row in range(8):
        if table >> row & 1:
            result = result | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (
                c if row & 1 else ~c
            )
    return result


def ones(a: Value) -> Value:
    """popc: how many bits are set."""
    return np.bitwise_count(a).astype("u4")


def leading_zeros(a: Value) -> Value:
    """clz: zeros above the uppermost bit that is set."""
    width = _width(a)
    filled = a
    for step in (1, 2, 4, 8, 16, 32)[: width.bit_length() - 1]:
        filled = filled | (filled >> a.dtype.type(step))
    return np.uint32(width) - ones(filled)


def highest(a: Value, amount: bool) -> Value:
    """bfind: the place of the uppermost bit that differs from the sign; all ones if none does."""
    u = _unsigned(a)
    u = choose(a < 0, ~u, u) if a.dtype.kind == "i" else u
    width = _width(a)
    place = np.uint32(width - 1) - leading_zeros(u)
    none = u == 0
    return choose(none, np.uint32(0xFFFFFFFF), np.uint32(width - 1) - place if amount else place)


def reverse(a: Value) -> Value:
    """brev: the bits in reverse."""
    width = _width(a)
    kind = a.dtype.type
    result = a & kind(0)
    for place in range(width):
        result = result | (((a >> kind(place)) & kind(1)) << kind(width - 1 - place))
    return result


def saturated(exact: Value, kind: str) -> Value:
    """An integer clamped to the range of a type."""
    info = np.iinfo(kind)
    low = max(info.min, np.iinfo(exact.dtype).min)
    high_ = min(info.max, np.iinfo(exact.dtype).max)
    return np.clip(exact, exact.dtype.type(low), exact.dtype.type(high_)).astype(kind)
