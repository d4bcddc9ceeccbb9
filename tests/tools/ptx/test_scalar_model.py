"""The scalar model itself: beside NumPy's arithmetic, and at values known by hand."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.tools.ptx.floats import BF16, F16, F32, FORMATS
from tests.tools.ptx.forms import form
from tests.tools.ptx.operands import tuples

KINDS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
SAME: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div.rn": np.divide,
    "sqrt.rn": np.sqrt,
    "copysign": lambda a, b: np.copysign(b, a),
    "cvt.rni": np.rint,
    "cvt.rzi": np.trunc,
    "cvt.rmi": np.floor,
    "cvt.rpi": np.ceil,
}


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", SAME)
def test_floats_beside_numpy(name: str, kind: str) -> None:
    inputs = form(f"{name}.{kind}.{kind}" if name.startswith("cvt") else f"{name}.{kind}")
    rows = tuples(inputs)
    columns = [
        np.array(column, f"u{KINDS[kind]().itemsize}").view(KINDS[kind])
        for column in zip(*rows, strict=True)
    ]
    with np.errstate(all="ignore"):
        expected = SAME[name](*columns)
    _expect_same(kind, [inputs.model(*row) for row in rows], expected)


@pytest.mark.parametrize(
    "out, kind", [("f16", "f32"), ("f16", "f64"), ("f32", "f64"), ("f64", "f16"), ("f32", "f16")]
)
def test_conversions_beside_numpy(out: str, kind: str) -> None:
    inputs = form(f"cvt.rn.{out}.{kind}")
    rows = tuples(inputs)
    bits = np.array([row[0] for row in rows], f"u{KINDS[kind]().itemsize}")
    with np.errstate(all="ignore"):
        expected = bits.view(KINDS[kind]).astype(KINDS[out])
    _expect_same(out, [inputs.model(*row) for row in rows], expected)


def _expect_same(kind: str, got: list[int | None], expected: np.ndarray) -> None:
    fmt = FORMATS[kind]
    for mine, theirs in zip(got, expected.view(f"u{expected.itemsize}").tolist(), strict=True):
        assert mine is not None
        assert mine == theirs or (fmt.is_nan(mine) and fmt.is_nan(theirs)), (hex(mine), hex(theirs))


def test_fma_of_f32_beside_long_doubles() -> None:
    """64 bits of fraction hold a product; sums that they cannot hold are left out."""
    model, source, compared = form("fma.rn.f32").model, random.Random(1), 0
    for _ in range(500):
        a, b, c = (F32.one + source.randrange(-1 << 26, 1 << 26) for _ in range(3))
        exact = F32.value(a) * F32.value(b) + F32.value(c)
        if exact.numerator.bit_length() <= 64:
            compared += 1
            x, y, z = (np.longdouble(np.uint32(n).view(np.float32)) for n in (a, b, c))
            assert np.uint32(model(a, b, c)).view(np.float32) == np.float32(x * y + z)
    assert compared > 400


KNOWN = [
    ("fma.rn.f32", (0x3F800001, 0x3F800001, 0xBF800002), 0x28800000),
    ("add.rm.f32", (0x3F800000, 0xBF800000), 0x80000000),
    ("add.rn.f32", (0x3F800000, 0xBF800000), 0),
    ("mul.rz.f32", (0x7F7FFFFF, 0x40000000), 0x7F7FFFFF),
    ("mul.sat.f32", (0x7FC00000, 0x3F800000), 0),
    ("min.f32", (0x7FC00000, 0x80000000), 0x80000000),
    ("max.f32", (0x80000000, 0x00000000), 0),
    ("max.NaN.f32", (0x7FC12345, 0x3F800000), 0x7FFFFFFF),
    ("setp.ltu.f32", (0x7FC00000, 0), 1),
    ("setp.ne.f32", (0x7FC00000, 0), 0),
    ("cvt.rn.f16.f32", (0x477FF000,), 0x7C00),
    ("cvt.rz.f16.f32", (0x477FF000,), 0x7BFF),
    ("cvt.rn.bf16x2.f32", (0x3F800000, 0xC0000000), 0x3F80C000),
    ("cvt.rna.tf32.f32", (0x3F801000,), 0x3F802000),
    ("cvt.rni.s32.f32", (0x40200000,), 2),
    ("cvt.rzi.s32.f32", (0x7FC00000,), 0),
    ("cvt.rzi.s32.f64", (0x7FF8000000000000,), 0x80000000),
    ("cvt.rzi.u8.f32", (0x43800000,), 255),
    ("cvt.rzi.s8.f32", (0xC3800000,), 0xFF80),
    ("cvt.s32.s8", (0x1280,), 0xFFFFFF80),
    ("cvt.sat.u8.s32", (0xFFFFFFFF,), 0),
    ("div.s32", (0x80000000, 0xFFFFFFFF), 0x80000000),
    ("rem.s32", (0x80000000, 0xFFFFFFFF), 0),
    ("rem.s32", (0xFFFFFFF9, 3), 0xFFFFFFFF),
    ("div.s32", (1, 0), None),
    ("mul.hi.s32", (0x80000000, 0x80000000), 0x40000000),
    ("mad.wide.s32", (0xFFFFFFFF, 5, 3), 0xFFFFFFFFFFFFFFFE),
    ("shl.b32", (1, 32), 0),
    ("shr.s32", (0x80000000, 200), 0xFFFFFFFF),
    ("shf.l.wrap.b32", (0x80000000, 1, 33), 3),
    ("shf.r.clamp.b32", (5, 9, 40), 9),
    ("bfe.s32", (0x00F00000, 20, 4), 0xFFFFFFFF),
    ("bfe.s32", (0x80000000, 40, 4), 0xFFFFFFFF),
    ("bfi.b32", (0xFF, 0, 28, 8), 0xF0000000),
    ("prmt.b32", (0x83020100, 0x87060504, 0xB740), 0xFF870400),
    ("bfind.s32", (0xFFFFFFFF,), 0xFFFFFFFF),
]


@pytest.mark.parametrize("name, operands, expected", KNOWN)
def test_known_values(name: str, operands: tuple[int, ...], expected: int | None) -> None:
    assert form(name).model(*operands) == expected


def test_packed_halves_do_not_mix() -> None:
    low, high = form("add.f16").model(0x7BFF, 0x7BFF), form("add.f16").model(0x3C00, 0xBC00)
    assert (low, high) == (F16.infinity, 0)
    assert form("add.f16x2").model(0x3C007BFF, 0xBC007BFF) == F16.infinity
    assert form("fma.rn.bf16x2").model(*[BF16.one | (BF16.one << 16)] * 3) == 0x40004000


def test_unknown_forms_are_refused() -> None:
    for name in ("add.weird.f32", "cvt.rn.satfinite.f16.f32", "frob.b32", "setp.lt.and.f32"):
        with pytest.raises(KeyError):
            form(name)
