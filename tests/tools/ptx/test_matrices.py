"""mma.sync and ldmatrix: fragments by lane beside the scalar model."""

import random
from fractions import Fraction

import numpy as np
import pytest

from tests.tools.ptx.floats import F32, TF32, Format
from tests.tools.ptx.fragments import (
    SHAPES,
    Matrix,
    Shape,
    matrix_elements,
    matrix_row,
    packed,
    product,
)
from tests.tools.ptx.instruction_text import THREADS, kernel
from tests.tools.ptx.integers import Whole
from tests.tools.ptx.runner import Array, execute
from tests.tools.ptx.warpgroups import bits_of as sum_of_bytes
from tests.tools.ptx.warpgroups import held_factor
from tests.tools.ptx.warps import LANES


def wide_load(array: int, first: int, count: int) -> list[str]:
    """`count` registers of the thread from consecutive words."""
    lines = [f"mad.wide.s32 %rd{20 + array}, %r0, {4 * count}, %rd{array};"]
    return lines + [
        f"ld.global.b32 %r{first + n}, [%rd{20 + array}+{4 * n}];" for n in range(count)
    ]


def registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"%r{first + n}" for n in range(count)) + "}"


def mma_kernel(shape: Shape) -> str:
    a, b = len(shape.a(0)) // shape.packed, len(shape.b(0)) // shape.packed
    body = [
        *wide_load(1, 10, a), *wide_load(2, 20, b), *wide_load(3, 30, 4),
        f"{shape.name} {registers(40, 4)}, {registers(10, a)}, {registers(20, b)}, {registers(30, 4)};",
        "mad.wide.s32 %rd20, %r0, 16, %rd0;", f"st.global.v4.b32 [%rd20], {registers(40, 4)};",
    ]  # fmt: skip
    return kernel("one", 4, body)


def run_mma(
    shape: Shape, a: list[list[int]], b: list[list[int]], c: list[list[int]]
) -> list[list[int]]:
    """Bits of `a b + c`, the same in each warp, from bits of elements."""
    lanes = [n % LANES for n in range(THREADS)]
    inputs = [
        [packed([matrix[i][j] for i, j in places(lane)], count) for lane in lanes]
        for matrix, places, count in (
            (a, shape.a, shape.packed),
            (b, shape.b, shape.packed),
            (c, shape.c, 1),
        )
    ]
    out = np.zeros((THREADS, 4), "u4")
    execute(mma_kernel(shape), [out, *(np.array(each, "u4") for each in inputs)])
    for warp in out.reshape(-1, LANES, 4):
        assert np.array_equal(warp, out[:LANES])
    results = [[0] * 8 for _ in range(16)]
    for lane in range(LANES):
        for (i, j), bits in zip(shape.c(lane), out[lane].tolist(), strict=True):
            results[i][j] = bits
    return results


def bits_of(values: Matrix, fmt: Format) -> list[list[int]]:
    shift = 13 if fmt is TF32 else 0
    return [[fmt.rounded(value) << shift for value in row] for row in values]


def numbers(source: random.Random, rows: int, columns: int, top: int, bottom: int) -> Matrix:
    return [
        [Fraction(source.randrange(-top, top + 1), bottom) for _ in range(columns)]
        for _ in range(rows)
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_products_of_small_integers_are_exact(shape: Shape) -> None:
    source = random.Random(shape.name)
    a, b = numbers(source, 16, shape.depth, 15, 1), numbers(source, shape.depth, 8, 15, 1)
    c = numbers(source, 16, 8, 1000, 1)
    got = run_mma(shape, bits_of(a, shape.format), bits_of(b, shape.format), bits_of(c, F32))
    assert got == bits_of(product(a, b, c)[0], F32)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_products_round_no_more_than_their_sizes_allow(shape: Shape) -> None:
    """PTX promises single precision at least, sums in any order: a truncation a term and one more."""
    source, fmt = random.Random(shape.name), shape.format
    a, b = (
        numbers(source, 16, shape.depth, 1 << 20, 1 << 18),
        numbers(source, shape.depth, 8, 1 << 20, 1 << 18),
    )
    c = numbers(source, 16, 8, 1 << 22, 1 << 20)
    inputs = [bits_of(a, fmt), bits_of(b, fmt), bits_of(c, F32)]
    shift = 13 if fmt is TF32 else 0
    a, b = ([[fmt.value(bits >> shift) for bits in row] for row in each] for each in inputs[:2])
    c = [[F32.value(bits) for bits in row] for row in inputs[2]]
    exact, sizes = product(a, b, c)
    for i, row in enumerate(run_mma(shape, *inputs)):
        for j, bits in enumerate(row):
            assert abs(F32.value(bits) - exact[i][j]) <= sizes[i][j] * (shape.depth + 1) / (1 << 23)


def test_tf32_products_ignore_low_bits() -> None:
    shape, source = SHAPES[0], random.Random(0)
    a, b, c = (
        numbers(source, 16, 8, 9, 1),
        numbers(source, 8, 8, 9, 1),
        numbers(source, 16, 8, 9, 1),
    )
    noisy = [
        [[bits | source.getrandbits(13) for bits in row] for row in bits_of(each, TF32)]
        for each in (a, b)
    ]
    assert run_mma(shape, *noisy, bits_of(c, F32)) == bits_of(product(a, b, c)[0], F32)


def test_products_with_infinity_and_nan() -> None:
    """A NaN stays in its row of A; an infinity meets a zero in one column."""
    shape = SHAPES[-1]
    a, b, c = ([[shape.format.one] * n for _ in range(m)] for m, n in ((16, 16), (16, 8), (16, 8)))
    a[3][5], a[9][2], b[2][4] = shape.format.nan, shape.format.infinity, 0
    got = run_mma(shape, a, b, [[F32.one] * 8 for _ in c])
    nans = {(i, j) for i, row in enumerate(got) for j, bits in enumerate(row) if F32.is_nan(bits)}
    assert nans == {(3, j) for j in range(8)} | {(9, 4)}
    assert all(got[9][j] == F32.infinity for j in range(8) if j != 4)
    assert got[0] == [F32.rounded(Fraction(16 if j == 4 else 17)) for j in range(8)]


# ---- ldmatrix ---------------------------------------------------------------------------------

ROWS = [
    7,
    3,
    12,
    0,
    31,
    9,
    22,
    18,
    1,
    30,
    5,
    27,
    14,
    8,
    25,
    2,
    19,
    6,
    11,
    29,
    4,
    16,
    23,
    10,
    28,
    13,
    20,
    26,
    15,
    21,
    24,
    17,
]
"""The 16-byte row of shared memory each lane points at."""


def ldmatrix_kernel(count: int, transposed: bool) -> str:
    """Each thread stores a row of 16 bytes, warp 0 loads; other warps' loads are the same."""
    trans = ".trans" if transposed else ""
    body = [
        "mov.b32 %r3, room;", "and.b32 %r4, %r1, 31;", "mad.lo.s32 %r5, %r4, 16, %r3;",
        "mad.wide.s32 %rd20, %r4, 16, %rd1;", f"ld.global.v4.b32 {registers(10, 4)}, [%rd20];",
        "setp.lt.u32 %p1, %r1, 32;", f"@%p1 st.shared.v4.b32 [%r5], {registers(10, 4)};", "bar.sync 0;",
        "mad.wide.s32 %rd21, %r4, 4, %rd2;", "ld.global.b32 %r6, [%rd21];", "mad.lo.s32 %r7, %r6, 16, %r3;",
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {registers(20, count)}, [%r7];",
        f"mad.wide.s32 %rd22, %r0, {4 * count}, %rd0;",
        *(f"st.global.b32 [%rd22+{4 * n}], %r{20 + n};" for n in range(count)),
    ]  # fmt: skip
    return kernel("one", 3, body, shared=True)


@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count: int, transposed: bool) -> None:
    memory: Array = np.arange(LANES * 8, dtype="u2") * 257
    out = np.zeros((THREADS, 2 * count), "u2")
    execute(
        ldmatrix_kernel(count, transposed), [out, memory, np.array(ROWS, "u4")], shared=16 * LANES
    )
    rows = {matrix_row(lane): ROWS[lane] for lane in range(LANES)}
    for thread in range(THREADS):
        places = matrix_elements(thread % LANES, transposed)
        expected = [int(memory[8 * rows[m, i] + j]) for m in range(count) for i, j in places]
        assert out[thread].tolist() == expected


@pytest.mark.parametrize("kind", ["s8", "u8"])
@pytest.mark.parametrize("saturates", [False, True])
def test_products_of_bytes(kind: str, saturates: bool) -> None:
    """Sums of 32 products of bytes, which wrap or are clamped."""
    source, whole = random.Random(kind), Whole(kind)
    a, b = ([[source.getrandbits(8) for _ in range(32)] for _ in range(n)] for n in (16, 8))
    c = [[source.choice((0, -(1 << 31), (1 << 31) - 1)) for _ in range(8)] for _ in range(16)]
    a[3], b[4], c[3][4] = [0x7F] * 32, [0x7F] * 32, (1 << 31) - 1
    packed_a = [packed4([a[i][k] for i, k in held_factor(n % LANES, kind)]) for n in range(THREADS)]
    packed_b = [packed4([b[n % LANES // 4][k] for k in inner(n)]) for n in range(THREADS)]
    held = [[c[i][j] for i, j in SHAPES[0].c(n % LANES)] for n in range(THREADS)]
    sat = ".satfinite" if saturates else ""
    body = [
        *wide_load(1, 10, 4), *wide_load(2, 20, 2), *wide_load(3, 30, 4),
        f"mma.sync.aligned.m16n8k32.row.col{sat}.s32.{kind}.{kind}.s32 {registers(40, 4)}, "
        f"{registers(10, 4)}, {registers(20, 2)}, {registers(30, 4)};",
        "mad.wide.s32 %rd20, %r0, 16, %rd0;", f"st.global.v4.b32 [%rd20], {registers(40, 4)};",
    ]  # fmt: skip
    out = np.zeros((THREADS, 4), "u4")
    execute(
        kernel("one", 4, body),
        [out, *(np.array(e, "u4") for e in (packed_a, packed_b)), np.array(held, "i4").view("u4")],
    )
    for lane in range(LANES):
        for (i, j), got in zip(SHAPES[0].c(lane), out[lane].tolist(), strict=True):
            exact = c[i][j] + sum(
                whole.value(x) * whole.value(y) for x, y in zip(a[i], b[j], strict=True)
            )
            assert got == sum_of_bytes(Fraction(exact), "s32", saturates)


DOUBLES = {"m8n8k4": 1, "m16n8k4": 2, "m16n8k8": 4, "m16n8k16": 8}
"""The elements of the left factor in each lane."""


@pytest.mark.parametrize("shape", DOUBLES)
def test_products_of_doubles(shape: str) -> None:
    """Lane 4 i + k holds A[i + 8 …][k + 4 …], B[k + 4 …][i] and two columns of rows i and i + 8."""
    source, count = random.Random(shape), DOUBLES[shape]
    rows, depth = (8, 4) if count == 1 else (16, 2 * count)
    a, b, c = (
        [[source.randrange(-99, 99) / 8 for _ in range(n)] for _ in range(m)]
        for m, n in ((rows, depth), (depth, 8), (rows, 8))
    )
    held, places = [], []
    for thread in range(THREADS):
        i, k = divmod(thread % LANES, 4)
        places.append([(i + low, 2 * k + right) for low in range(0, rows, 8) for right in (0, 1)])
        left = [a[i + low][k + first] for first in range(0, depth, 4) for low in range(0, rows, 8)]
        right = [b[k + first][i] for first in range(0, depth, 4)]
        held.append([*left, *right, *(c[m][n] for m, n in places[-1])])
    out = np.zeros((THREADS, len(places[0])))
    execute(doubles_kernel(shape, len(left), len(right), len(places[0])), [out, np.array(held)])
    for thread, own in enumerate(places):
        for got, (i, j) in zip(out[thread].tolist(), own, strict=True):
            assert got == c[i][j] + sum(a[i][n] * b[n][j] for n in range(depth))


def doubles_kernel(shape: str, left: int, right: int, results: int) -> str:
    count = left + right + results
    names = iter(range(9, 29))

    def some(n: int) -> str:
        return "{" + ", ".join(f"%rd{next(names)}" for _ in range(n)) + "}"

    inputs = f"{some(left)}, {some(right)}, {(added := some(results))}"
    return kernel("one", 2, [
        f"mad.wide.s32 %rd2, %r0, {8 * count}, %rd1;",
        *(f"ld.global.b64 %rd{9 + n}, [%rd2+{8 * n}];" for n in range(count)),
        f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 {added}, {inputs};",
        f"mad.wide.s32 %rd3, %r0, {8 * results}, %rd0;",
        *(f"st.global.b64 [%rd3+{8 * n}], {each};"
          for n, each in enumerate(added.strip("{}").split(", "))),
    ])  # fmt: skip


def packed4(values: list[int]) -> list[int]:
    """Registers of four bytes, the first in the lowest."""
    return [int.from_bytes(values[n : n + 4], "little") for n in range(0, len(values), 4)]


def inner(thread: int) -> list[int]:
    """Places along K of the bytes of B that a lane holds."""
    return [4 * (thread % 4) + index + 16 * half for half in (0, 1) for index in range(4)]
