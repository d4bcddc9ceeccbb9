"""Random numbers in native kernels, equal to those of `compiler.ir.philox`.

A function draws the numbers of elements from a key (an i64 scalar), a stream and the elements'
indices (i32 or i64, not negative; scalars or lanes). `uniform_in_order` draws those of consecutive
elements with one Philox block for every four of them.

Words are held in the lower halves of 64-bit lanes; the upper halves are not cleared, since the
multiplication of vectors reads lower halves only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler.codegen.native.functions.floats import plus, times
from compiler.codegen.native.functions.logarithms import log
from compiler.codegen.native.llvm_ir import (
    F32,
    F64,
    I32,
    I64,
    Function,
    Value,
    constant,
    lane_numbers,
    zero,
)
from compiler.ir.types import DType

_LOW = 0xFFFFFFFF
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_COSINE = (-14.3941354073, 42.0098057339, -76.7042813219, 81.6052262063, -41.341702117)

Words = tuple[Value, Value, Value, Value]


def philox(f: Function, key: Value, counter: Words) -> Words:
    """Compute the four words of Philox 4x32-10 for a key and the words of a counter."""
    a, b, c, d = counter
    first = f.splat(key, a.type.lanes)
    second = _shifted(f, first, 32)
    for _ in range(10):
        left, right = _product(f, a, _FACTORS[0]), _product(f, c, _FACTORS[1])
        a, b = _mixed(f, right, b, first), right
        c, d = _mixed(f, left, d, second), left
        first = f.add(first, constant(first.type, _KEY_STEPS[0]))
        second = f.add(second, constant(second.type, _KEY_STEPS[1]))
    return a, b, c, d


def _product(f: Function, a: Value, factor: int) -> Value:
    return f.mul(_low(f, a), constant(a.type, factor))


def _mixed(f: Function, product: Value, word: Value, key: Value) -> Value:
    return f.binary("xor", f.binary("xor", _shifted(f, product, 32), word), key)


def _low(f: Function, word: Value) -> Value:
    return f.binary("and", word, constant(word.type, _LOW))


def _shifted(f: Function, word: Value, bits: int) -> Value:
    return f.binary("lshr", word, constant(word.type, bits))


def block_words(f: Function, key: Value, stream: int, block: Value) -> Words:
    """The four words of a block of a stream; the block is an i64."""
    none = zero(block.type)
    counter = (block, _shifted(f, block, 32), constant(block.type, stream), none)
    return philox(f, key, counter)


def _index(f: Function, i: Value) -> Value:
    """An index as an i64."""
    return i if i.type.element == "i64" else f.convert("zext", i, I64)


def _has_bit(f: Function, i: Value, bit: int) -> Value:
    return f.compare("ne", f.binary("and", i, constant(i.type, bit)), zero(i.type))


def uniform(f: Function, key: Value, stream: int, i: Value, dtype: DType = DType.FP32) -> Value:
    """Draw numbers uniform on [0, 1): float32 of 24 bits, or float64 of 53 bits."""
    i = _index(f, i)
    if dtype is DType.FP64:
        low, high = _pair_of_words(f, key, stream, i)
        whole = f.binary("or", f.binary("shl", high, constant(high.type, 32)), _low(f, low))
        return times(f, f.convert("sitofp", _shifted(f, whole, 11), F64), 2.0**-53)
    a, b, c, d = block_words(f, key, stream, _shifted(f, i, 2))
    odd = _has_bit(f, i, 1)
    word = f.select(_has_bit(f, i, 2), f.select(odd, d, c), f.select(odd, b, a))
    return _even_floats(f, f.convert("trunc", word, I32))


def _even_floats(f: Function, words: Value) -> Value:
    """Floats uniform on [0, 1), of the upper 24 bits of i32 words."""
    return times(f, f.convert("sitofp", _shifted(f, words, 8), F32), 2.0**-24)


def uniform_in_order(
    f: Function, key: Value, stream: int, first: Value, lanes: int, vectors: int = 2
) -> list[Value]:
    """Draw the float32 numbers of `lanes * vectors` elements from `first`, a multiple of 4 (i64).

    `lanes * vectors` is a multiple of 4. With 2 vectors the blocks fill a vector register.
    """
    words = words_in_order(f, key, stream, first, lanes, vectors)
    return [_even_floats(f, word) for word in words]


def words_in_order(
    f: Function, key: Value, stream: int, first: Value, lanes: int, vectors: int
) -> list[Value]:
    """The i32 words of `lanes * vectors` consecutive elements from a multiple of 4."""
    blocks = lanes * vectors // 4
    start = f.splat(_shifted(f, first, 2), blocks)
    a, b, c, d = block_words(f, key, stream, f.add(start, lane_numbers(start.type)))
    front, back = _paired(f, a, b), _paired(f, c, d)
    sides, halves = (0, 2 * blocks), (0, 1)
    order = [2 * n + half + side for n in range(blocks) for side in sides for half in halves]
    return [f.shuffle(front, back, order[at : at + lanes]) for at in range(0, len(order), lanes)]


def _paired(f: Function, low: Value, high: Value) -> Value:
    """The words of two vectors in turn, as i32 lanes."""
    upper = f.binary("shl", high, constant(high.type, 32))
    both = f.binary("or", _low(f, low), upper)
    type = I32.vector(2 * low.type.lanes)
    return f.value(type, f"bitcast {both} to {type}")


def _pair_of_words(f: Function, key: Value, stream: int, i: Value) -> tuple[Value, Value]:
    """The words 2 i and 2 i + 1 of a stream."""
    a, b, c, d = block_words(f, key, stream, _shifted(f, i, 1))
    odd = _has_bit(f, i, 1)
    return f.select(odd, c, a), f.select(odd, d, b)


def below(f: Function, key: Value, stream: int, i: Value, span: Value) -> Value:
    """Draw i64 numbers uniform on [0, span): the upper half of 64 random bits times the span.

    The span is an i64 of as many lanes as the index.
    """
    low, high = (_low(f, word) for word in _pair_of_words(f, key, stream, _index(f, i)))
    first, second = _low(f, span), _shifted(f, span, 32)
    middle = f.add(f.mul(high, first), _shifted(f, f.mul(low, first), 32))
    other = f.add(f.mul(low, second), _low(f, middle))
    whole = f.add(f.mul(high, second), _shifted(f, middle, 32))
    return f.add(whole, _shifted(f, other, 32))


def normal(f: Function, key: Value, stream: int, i: Value, dtype: DType = DType.FP32) -> Value:
    """Draw standard normal numbers by the Box-Muller transform, float32 or float64.

    Elements 2 n and 2 n + 1 are the two outputs for one pair of words. The arithmetic is that of
    `compiler.ir.philox.normal_by_key`, operation by operation.
    """
    i, element = _index(f, i), F64 if dtype is DType.FP64 else F32
    a, b, c, d = block_words(f, key, stream, _shifted(f, i, 2))
    behind = _has_bit(f, i, 2)
    near, around = (
        f.convert("uitofp", f.convert("trunc", f.select(behind, *pair), I32), element)
        for pair in ((c, a), (d, b))
    )
    near = plus(f, times(f, near, 2.0**-32), 2.0**-33)
    far = f.intrinsic("sqrt", times(f, log(f, near), -2.0))
    periods = times(f, around, 2.0**-32)
    shifted = f.select(_has_bit(f, i, 1), plus(f, periods, -0.25), periods)
    return f.mul(far, _cos_2pi(f, shifted))


def _cos_2pi(f: Function, periods: Value) -> Value:
    """cos(2 pi x) for x from -1/4 to 1, as `compiler.ir.philox.cos_2pi` rounds it."""
    whole = f.intrinsic("floor", plus(f, periods, 0.5))
    size = f.intrinsic("fabs", f.sub(periods, whole))
    distance = f.sub(constant(size.type, 0.25), size)
    s = f.mul(distance, distance)
    return f.mul(distance, plus(f, f.mul(s, _polynomial(f, s, _COSINE)), 6.28318530707))


def _polynomial(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial with a rounding after each product and sum."""
    result = constant(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        result = plus(f, f.mul(x, result), coefficient)
    return result


DRAWS: Mapping[str, Callable[..., Value]] = {"uniform": uniform, "normal": normal, "below": below}
"""Random functions of kernels, by name."""
