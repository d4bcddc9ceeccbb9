"""Helper functions for kernels: what NumPy has and Triton lacks.

They are Triton source text, since a module includes the ones it uses, and work in Triton's
interpreter too. Results are accurate to a few ulp of float32, of
float64 to 1e-12.
"""

from __future__ import annotations

import re

from compiler.codegen.triton.random import SOURCES

_SOURCES = '''
def rounded(x):
    """Round to the nearest bfloat16; Triton's interpreter would truncate, so round bits first."""
    if INTERPRETED:
        bits = x.to(tl.float32).to(tl.int32, bitcast=True)
        nearest = (bits + 32767 + ((bits >> 16) & 1)) & -65536
        x = tl.where(x == x, nearest, bits).to(tl.float32, bitcast=True)
    return x.to(tl.bfloat16)

def factor(x):
    """A bfloat16 factor, upcast in Triton's interpreter, which cannot multiply bfloat16."""
    if INTERPRETED:
        x = x.to(tl.float32)
    return x

def rounded_tf32(x):
    """Round float32 to the nearest TF32, ties away from 0; a tensor core would truncate."""
    if CONVERTS_TF32:
        x = tl.inline_asm_elementwise(
            "cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        bits = x.to(tl.int32, bitcast=True)
        x = tl.where(x == x, (bits + 4096) & -8192, bits).to(tl.float32, bitcast=True)
    return x

def meet(arrived, done, rounds):
    """Wait until all programs have come here `done` times; after the last of the rounds, clear."""
    tl.debug_barrier()
    count, wanted = tl.atomic_add(arrived, 1) + 1, done * tl.num_programs(0)
    if count == rounds * tl.num_programs(0):
        tl.store(arrived, 0)
    while (count < wanted) & (done < rounds):
        count = tl.atomic_add(arrived, 0, sem="acquire")
    tl.debug_barrier()

def few_dots(left, right, total, PARTS: tl.constexpr):
    """left @ right + total of float32; for few columns, a sum of all products at once."""
    if right.shape[1] < 8:
        total += tl.sum(left[:, None, :] * tl.trans(right)[None, :, :], 2)
    else:
        total = float32_dot(left, right, total, PARTS)
    return total

def by_columns(offset):
    """The offsets of a right factor, as laid out along columns for `tl.dot`."""
    if offset.shape[1] >= 8:
        offset = tl.max_contiguous(offset, [1, 1])
    return offset

def bfloat16_parts(x):
    """Three bfloat16 numbers whose sum is a float32, the largest first, of 8 bits each.

    The first is truncated: rounded, it would be infinite near the largest float32. If x is infinite
    or NaN, the others are NaN.
    """
    high = (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    rest = x - high
    middle = rounded(rest)
    low = rest - middle.to(tl.float32)
    return factor(high.to(tl.bfloat16)), factor(middle), factor(low.to(tl.bfloat16))

def float32_dot(left, right, total, PARTS: tl.constexpr):
    """left @ right + total of float32: exact products, or those of three bfloat16 parts each.

    Tensor cores compute six products of parts, in order from small to large; the other three are
    below 2^-24 of the result. NaN among the small ones stems from infinity or NaN, which the last
    one multiplies too.
    """
    if PARTS == 1:
        total = tl.dot(left, right, total, input_precision="ieee", out_dtype=tl.float32)
    else:
        a, b, c = bfloat16_parts(left)
        x, y, z = bfloat16_parts(right)
        small = tl.dot(b, y, out_dtype=tl.float32)
        small = tl.dot(c, x, small, out_dtype=tl.float32)
        small = tl.dot(a, z, small, out_dtype=tl.float32)
        small = tl.dot(b, x, small, out_dtype=tl.float32)
        small = tl.dot(a, y, small, out_dtype=tl.float32)
        small = tl.where(small == small, small, 0)
        total += tl.dot(a, x, small, out_dtype=tl.float32)
    return total

def times(a, b):
    """The product."""
    return a * b

def larger(a, b):
    """The maximum of two; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)

def smaller(a, b):
    """The minimum of two; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)

def largest(x, axis: tl.constexpr):
    """The maximum along an axis; NaN if any is."""
    missing = tl.max((x != x).to(tl.int32), axis)
    return tl.where(missing > 0, float("nan"), tl.max(x, axis))

def smallest(x, axis: tl.constexpr):
    """The minimum along an axis; NaN if any is."""
    missing = tl.max((x != x).to(tl.int32), axis)
    return tl.where(missing > 0, float("nan"), tl.min(x, axis))

def sortable(x):
    """Integers that sort like floats; NaN is the largest, -0 equals 0."""
    bits = tl.where(x != x, float("nan"), x + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 2147483647)

def expm1(x):
    """exp(x) - 1, by its series near 0."""
    if x.dtype == tl.float64:
        tail = 1 + x / 10 * (1 + x / 11 * (1 + x / 12 * (1 + x / 13 * (1 + x / 14))))
        tail = 1 + x / 6 * (1 + x / 7 * (1 + x / 8 * (1 + x / 9 * tail)))
        near = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * tail))))
    else:
        near = x * (0.0083333333 + x * (0.0013888889 + x * 0.00019841270))
        near = x + x * (x * (0.5 + x * (0.16666667 + x * (0.041666667 + near))))
    return tl.where(tl.abs(x) < 0.3, near, tl.exp(x) - 1)

def log1p(x):
    """log(1 + x), corrected for the rounding of 1 + x."""
    u = 1 + x
    kept = u - 1
    exact = tl.log(u) * (x / tl.where(kept == 0, 1, kept))
    return tl.where(kept == 0, x, tl.where(tl.abs(u) == float("inf"), tl.log(u), exact))

def log2(x):
    """The logarithm to the base 2."""
    return tl.log(x) * 1.4426950408889634

def log10(x):
    """The logarithm to the base 10."""
    return tl.log(x) * 0.4342944819032518

def tanh(x):
    """The hyperbolic tangent: by its series near 0, else 1 - 2 / (exp(2 |x|) + 1) with x's sign."""
    if x.dtype == tl.float64:
        grown = expm1(2 * smaller(tl.abs(x), tl.abs(x) * 0 + 20))
        return tl.where(x != x, x, sign(x) * grown / (grown + 2))
    else:
        square = x * x
        near = square * (-0.053968254 + square * (0.021869488 + square * -0.0088632355))
        near = x + x * (square * (-0.33333333 + square * (0.13333333 + near)))
        far = 1 - 2 / (tl.exp(2 * tl.abs(x)) + 1)
        return tl.where(tl.abs(x) < 0.4, near, tl.where(x < 0, -far, far))

def sinh(x):
    """The hyperbolic sine."""
    grown = expm1(tl.abs(x))
    return sign(x) * (grown + grown / (grown + 1)) / 2

def cosh(x):
    """The hyperbolic cosine."""
    grown = tl.exp(tl.abs(x))
    return (grown + 1 / grown) / 2

def tan(x):
    """The tangent."""
    return tl.sin(x) / tl.cos(x)

def arctan(x):
    """The inverse tangent, by argument reduction and a series."""
    a = tl.abs(x)
    turned = a > 1
    a = tl.where(turned, 1 / a, a)
    shifted = a > 0.2679491924311227
    a = tl.where(shifted, (1.7320508075688772 * a - 1) / (a + 1.7320508075688772), a)
    s = a * a
    tail = 1 / 17.0
    if x.dtype == tl.float64:
        tail = 1 / 21.0 - s * (1 / 23.0 - s * (1 / 25.0 - s * (1 / 27.0 - s / 29.0)))
        tail = 1 / 17.0 - s * (1 / 19.0 - s * tail)
    tail = 1 / 9.0 - s * (1 / 11.0 - s * (1 / 13.0 - s * (1 / 15.0 - s * tail)))
    near = a * (1 - s * (1 / 3.0 - s * (1 / 5.0 - s * (1 / 7.0 - s * tail))))
    near = tl.where(shifted, near + 0.5235987755982989, near)
    return sign(x) * tl.where(turned, 1.5707963267948966 - near, near)

def arcsin(x):
    """The inverse sine."""
    rest = square_root((1 - x) * (1 + x))
    inside = arctan(x / tl.where(rest == 0, 1, rest))
    return tl.where(rest == 0, sign(x) * 1.5707963267948966, inside)

def arccos(x):
    """The inverse cosine."""
    return 1.5707963267948966 - arcsin(x)

def sign(x):
    """-1, 0 or 1; NaN for NaN."""
    return tl.where(x > 0, x * 0 + 1, tl.where(x < 0, x * 0 - 1, x))

def trunc(x):
    """Round towards 0."""
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))

def rint(x):
    """Round to the nearest integer, ties to even."""
    down = tl.floor(x)
    rest = x - down
    odd = down - 2 * tl.floor(down / 2)
    up = (rest > 0.5) | ((rest == 0.5) & (odd == 1))
    return tl.where(up, down + 1, down)

def divided(a, b):
    """a / b rounded to nearest; on a GPU, `/` of float32 is off by up to 2 ulp."""
    quotient = a / b
    if quotient.dtype == tl.float32:
        quotient = tl.div_rn(a, b)
    return quotient

def square_root(x):
    """The square root rounded to nearest; on a GPU, `tl.sqrt` of float32 is approximate."""
    root = tl.sqrt(x)
    if root.dtype == tl.float32:
        root = tl.sqrt_rn(x)
    return root

def fmod(a, b):
    """The remainder of a / b, with the sign of a; exact for quotients below 2^24."""
    quotient = trunc(divided(a, b))
    rest = tl.where(quotient == 0, a, tl.fma(-quotient, b, a))
    beyond = (rest != 0) & ((rest < 0) != (a < 0))
    return tl.where(beyond, rest + sign(a) * tl.abs(b), rest)

def remainder(a, b):
    """The remainder of a / b, with the sign of b."""
    rest = fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)

def floor_divide(a, b):
    """The quotient, rounded down."""
    rest = fmod(a, b)
    whole = rint(divided(a - rest, b))
    whole = tl.where((rest != 0) & ((rest < 0) != (b < 0)), whole - 1, whole)
    return tl.where(b == 0, divided(a, b), whole)

def floor_divide_whole(a, b):
    """The quotient of integers, rounded down."""
    quotient = a // b
    return tl.where((quotient * b != a) & ((a < 0) != (b < 0)), quotient - 1, quotient)

def remainder_whole(a, b):
    """The remainder of integers, with the sign of b."""
    return a - floor_divide_whole(a, b) * b

def fmod_whole(a, b):
    """The remainder of integers, with the sign of a."""
    return a % b

def power(a, b):
    """a to the power b; NaN for negative a and fractional b. Integer powers are exact."""
    size = tl.exp(b * tl.log(tl.abs(a)))
    near = tl.where(size < 4194304, tl.floor(size + 0.5), size)
    near = tl.where(b == tl.floor(b), tl.where(b > 0, near, size), size)
    size = tl.where(a == tl.floor(a), near, size)
    odd = (b - 2 * tl.floor(b / 2)) == 1
    below = tl.where(b == tl.floor(b), tl.where(odd, -size, size), float("nan"))
    at_zero = tl.where(b > 0, a * 0, 1 / (a * 0))
    real = tl.where(a == 0, at_zero, tl.where(a < 0, below, size))
    return tl.where(b == 0, 1.0, real)

def power_whole(a, b):
    """An integer to the power of an integer from 0 to 63."""
    result = a * 0 + 1
    factor = a
    for bit in tl.static_range(6):
        result = tl.where(((b >> bit) & 1) == 1, result * factor, result)
        factor = factor * factor
    return result
'''

HELPERS: dict[str, str] = {
    match.group(1): match.group(0).rstrip()
    for match in re.finditer(
        r"^def (\w+)\(.*?(?=^def |\Z)", _SOURCES + SOURCES, re.MULTILINE | re.DOTALL
    )
}
"""The source of each helper, by name."""


GLOBALS: dict[str, str] = {
    "INTERPRETED": "INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)",
    "CONVERTS_TF32": (
        "CONVERTS_TF32 = tl.constexpr("
        "torch.version.hip is None and not triton.knobs.runtime.interpret)"
    ),
}
"""The source of each constant that helpers use."""


def constant_for(name: str, maker: str) -> str:
    """The source of a constant in a kernel compiled ahead of time for GPUs of one maker."""
    return f"{name} = tl.constexpr({maker == 'cuda'})" if name == "CONVERTS_TF32" else GLOBALS[name]


def with_needed(names: list[str]) -> list[str]:
    """Helpers with their callees, each after its callees.

    >>> with_needed(["tanh"])
    ['smaller', 'expm1', 'sign', 'tanh']
    """
    needed: dict[str, None] = {}

    def add(name: str) -> None:
        called = re.findall(r"\b(\w+)\(", HELPERS[name].partition("\n")[2])
        for helper in (helper for helper in HELPERS if helper in called and helper != name):
            if helper not in needed:
                add(helper)
        needed[name] = None

    for name in names:
        if name not in needed:
            add(name)
    return list(needed)
