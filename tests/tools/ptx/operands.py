"""Operands of instructions: edges of their types and seeded random bits."""

import random
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod

from tests.tools.ptx.floats import FORMATS, Format
from tests.tools.ptx.forms import Form

COUNT = 256
"""Operand tuples of a form: whole blocks of threads."""

SHIFTS = [
    0,
    1,
    2,
    7,
    8,
    15,
    16,
    17,
    24,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    257,
    1 << 31,
    (1 << 32) - 1,
]


def width(kind: str) -> int:
    """The bits of a kind in memory; 8-bit operands come in 16-bit registers with any upper byte."""
    if kind == "pred":
        return 8
    if kind in ("count", "tf32") or kind.endswith("x2"):
        return 32
    return max(16, FORMATS[kind].bits if kind in FORMATS else int(kind[1:]))


def edges(kind: str) -> list[int]:
    """Values at which an instruction may go wrong."""
    if kind == "pred":
        return [0, 1]
    if kind == "count":
        return SHIFTS
    if kind in FORMATS:
        return _float_edges(FORMATS[kind])
    if kind.endswith("x2"):
        halves = edges(kind.removesuffix("x2"))
        return [a | (b << 16) for a, b in zip(halves, halves[5:] + halves[:5], strict=True)]
    return _whole_edges(width(kind))


def _whole_edges(bits: int) -> list[int]:
    most = (1 << bits) - 1
    near = [1 << n for n in (7, 8, 15, 16, 24, 31, 32, 53, 63) if n < bits]
    around = [n + step for n in near for step in (-1, 0, 1)]
    small = [0, 1, 2, 3, 10, most, most - 1, most - 9, most - 126, most - 127, most - 128]
    return sorted({n & most for n in small + around})


def _float_edges(fmt: Format) -> list[int]:
    one, least = fmt.one, 1 << fmt.fraction
    sizes = [
        0, 1, least - 1, least, least + 1, fmt.infinity - 1, fmt.infinity, fmt.infinity + 1, fmt.nan,
        one - 1, one, one + 1, one - least, one + least, one + (least >> 1), one + least + (least >> 2),
        *(fmt.rounded(Fraction(2) ** n - Fraction(half, 2)) for n in (7, 8, 15, 16, 24, 31, 32, 63, 64) for half in (0, 1)),
    ]  # fmt: skip
    sizes = [n & (fmt.sign - 1) for n in sizes]
    return sorted({n | sign for n in sizes for sign in (0, fmt.sign)})


def random_bits(source: random.Random, kind: str) -> int:
    """Any bits; floats are as often of middling size, so that sums cancel and round."""
    if kind == "pred":
        return source.getrandbits(1)
    if kind == "count":
        return source.randrange(80)
    if kind.endswith("x2"):
        half = kind.removesuffix("x2")
        return random_bits(source, half) | (random_bits(source, half) << 16)
    bits = source.getrandbits(width(kind))
    if kind in FORMATS and source.random() < 0.6:
        fmt = FORMATS[kind]
        near = fmt.one + (source.randrange(-12, 13) << fmt.fraction)
        return (bits & (fmt.sign | ((1 << fmt.fraction) - 1))) + near
    return bits >> source.choice((0, 0, 0, width(kind) // 2))


@cache
def tuples(form: Form) -> tuple[tuple[int, ...], ...]:
    """Operand tuples of a form, the same in every run: at most two thirds of edges."""
    source = random.Random(form.name)
    lists = [edges(kind) for kind in form.operands]
    limit = COUNT * 2 // 3
    if prod(map(len, lists)) <= limit:
        result = list(product(*lists))
    else:
        result = list(zip(*(source.choices(items, k=limit) for items in lists), strict=True))
    rest = range(COUNT - len(result))
    columns = [[random_bits(source, kind) for _ in rest] for kind in form.operands]
    if form.name.startswith("fma") and form.result in FORMATS:
        rows = [_with_cancelled(form, *row) for row in zip(*columns, strict=True)]
        return (*result, *rows)
    return (*result, *zip(*columns, strict=True))


def _with_cancelled(form: Form, a: int, b: int, c: int) -> tuple[int, ...]:
    """Operands whose sum is as often what rounding the product alone would lose."""
    fmt = FORMATS[form.result]
    product = form.model(a, b, fmt.sign)
    return (a, b, c) if c & 1 or product is None else (a, b, product ^ fmt.sign)
