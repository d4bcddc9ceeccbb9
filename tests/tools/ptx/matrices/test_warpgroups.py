"""wgmma of all types, layouts and operands beside the scalar model."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from tests.tools.ptx.floats import FORMATS
from tests.tools.ptx.instruction_text import THREADS, address, kernel
from tests.tools.ptx.runner import agrees_as, column, execute
from tests.tools.ptx.warpgroups import (
    SIZES,
    Stored,
    bits_of,
    held_factor,
    held_sum,
    number,
    total,
)
from tools.ptx.errors import BarrierFault, Hazard, MemoryFault, UnsupportedInstruction

B_AT = 16384
SHARED = 3 * B_AT
ENTER = ["fence.proxy.async.shared::cta;", "bar.sync 0;", "wgmma.fence.sync.aligned;"]
LEAVE = ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]


@dataclass(frozen=True)
class Case:
    """A product of 64 by K by `columns`; `in_registers`: A is not in shared memory."""

    columns: int
    kind: str
    result: str = "f32"
    second: str = ""
    mode: int = 1
    across: tuple[bool, bool] = (False, False)
    in_registers: bool = False
    adds: bool = True
    signs: tuple[int, int] = (1, 1)
    saturates: bool = False
    large: bool = False

    @property
    def a(self) -> Stored:
        return Stored(64, self.kind, self.mode, self.across[0])

    @property
    def b(self) -> Stored:
        return Stored(self.columns, self.second or self.kind, self.mode, self.across[1], B_AT)

    @property
    def name(self) -> str:
        sat = ".satfinite" if self.saturates else ""
        depth = self.a.depth
        return (
            f"wgmma.mma_async.sync.aligned.m64n{self.columns}k{depth}.{self.result}"
            f".{self.kind}.{self.b.kind}{sat}"
        )

    @property
    def registers(self) -> int:
        return self.columns // (4 if self.result == "f16" else 2)

    def instruction(self) -> str:
        """The product of A at %rd10 (or in %r60 to %r63) and B at %rd11, added to %r100 and more."""
        to = ", ".join(f"%s{n}" for n in range(self.registers))
        left = "{%r60, %r61, %r62, %r63}" if self.in_registers else "%rd10"
        numbers = [f"{sign}" for sign in self.signs] if SIZES[self.kind] > 1 else []
        if SIZES[self.kind] == 2:
            turned = self.across[1:] if self.in_registers else self.across
            numbers += [str(int(each)) for each in turned]
        return f"{self.name} {{{to}}}, {', '.join([left, '%rd11', '%p1', *numbers])};"


def elements(source: random.Random, kind: str, count: int, large: bool) -> list[int]:
    """Bits of small numbers, so that sums are exact; `large` ones overflow, and some are infinite."""
    if kind not in FORMATS:
        low, high = (0, 255) if kind == "u8" else (-128, 127)
        return [(high if large else source.randint(low, high)) & 0xFF for _ in range(count)]
    fmt = FORMATS[kind]
    actual = [fmt.rounded(Fraction(source.randint(-8, 8), 4)) for _ in range(count)]
    if large:
        for place, bits in zip(
            (7, 40, 90), (fmt.infinity, fmt.nan, fmt.sign | fmt.infinity), strict=True
        ):
            actual[place] = bits
        actual[200:230] = [fmt.infinity - 1] * 30
    return actual


def matrices(case: Case) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Bits of A by rows, of B by columns, and of the sum before."""
    source = random.Random(case.name + str(case.mode))
    depth = case.a.depth
    a = elements(source, case.kind, 64 * depth, case.large)
    b = elements(source, case.b.kind, case.columns * depth, case.large and case.kind[1:] == "8")
    limit = 0x7FFFFF00 if case.large else 1000
    c = [
        source.randint(-limit, limit)
        if case.result == "s32"
        else Fraction(source.randint(-9, 9), 2)
        for _ in range(64 * case.columns)
    ]
    sums = [bits_of(Fraction(each), case.result) for each in c]
    return _rows(a, depth), _rows(b, depth), _rows(sums, case.columns)


def _rows(values: Sequence[int], width: int) -> list[list[int]]:
    return [list(values[start : start + width]) for start in range(0, len(values), width)]


def memory_of(case: Case, a: list[list[int]], b: list[list[int]]) -> np.ndarray:
    """Shared memory with both factors in their places."""
    image = bytearray(SHARED)
    for stored, rows in ((case.a, a), (case.b, b)):
        size = SIZES[stored.kind]
        for row, values in enumerate(rows):
            for k, bits in enumerate(values):
                at = stored.place(row, k)
                image[at : at + size] = (bits << (13 if stored.kind == "tf32" else 0)).to_bytes(
                    size, "little"
                )
    return np.frombuffer(bytes(image), "u4").copy()


def fill(case: Case) -> list[str]:
    """Lines that copy array 1 to shared memory, and make the descriptors."""
    lines = ["mov.b32 %r3, room;", "mul.lo.s32 %r4, %r1, 16;"]
    for start in range(0, SHARED, 16 * THREADS):
        lines += [
            f"add.s32 %r5, %r4, {start};", "cvt.u64.u32 %rd12, %r5;", "add.s64 %rd13, %rd1, %rd12;",
            "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd13];", "add.s32 %r6, %r3, %r5;",
            "st.shared.v4.b32 [%r6], {%r10, %r11, %r12, %r13};",
        ]  # fmt: skip
    for register, stored in ((10, case.a), (11, case.b)):
        lines += [
            f"add.s32 %r7, %r3, {stored.start};", "shr.u32 %r7, %r7, 4;", "cvt.u64.u32 %rd14, %r7;",
            f"mov.b64 %rd15, {stored.descriptor};", f"or.b64 %rd{register}, %rd14, %rd15;",
        ]  # fmt: skip
    return lines


def sums(case: Case, verb: str) -> list[str]:
    """Lines that load the sum from array 2, or store it to array 0."""
    array = 2 if verb == "ld" else 0
    lines = address(array, 4 * case.registers, 16)
    for n in range(case.registers):
        place, register = f"[%rd16+{4 * n}]", f"%s{n}"
        operands = f"{register}, {place}" if verb == "ld" else f"{place}, {register}"
        lines.append(f"{verb}.global.b32 {operands};")
    return lines


def text_of(case: Case, between: Sequence[str] = (), leave: Sequence[str] = LEAVE) -> str:
    body = [
        f".reg .b32 %s<{case.registers}>;", *fill(case), *sums(case, "ld"), *address(3, 16, 17),
        "ld.global.v4.b32 {%r60, %r61, %r62, %r63}, [%rd17];",
        f"setp.eq.b32 %p1, %r3, {'%r3' if case.adds else -1};", *ENTER, *between,
        case.instruction(), *leave, *sums(case, "st"),
    ]  # fmt: skip
    return kernel("one", 4, body, shared=True).replace("sm_80", "sm_90a")


def arguments(case: Case) -> tuple[list[np.ndarray], dict[int, list[int]]]:
    """Arrays of the kernel, and some rows of the sum that is expected."""
    a, b, c = matrices(case)
    held = [[c[i][j] for i, j in held_sum(thread, case.columns)] for thread in range(THREADS)]
    parts = [[a[i][k] for i, k in held_factor(thread, case.kind)] for thread in range(THREADS)]
    packed = 4 // SIZES[case.kind]
    shift = 13 if case.kind == "tf32" else 0
    registers = [_packed([v << shift for v in row], packed) for row in parts]
    before = [_packed(row, 2 if case.result == "f16" else 1) for row in held]
    inputs = [
        np.zeros((THREADS, case.registers), "u4"), memory_of(case, a, b),
        np.array(before, "u4"), np.array(registers, "u4"),
    ]  # fmt: skip
    return inputs, {
        i: [expected(case, a[i], b[j], c[i][j]) for j in range(case.columns)]
        for i in range(0, 64, 1 if case.large else 7)
    }


def _packed(values: Sequence[int], count: int) -> list[int]:
    bits = 32 // count
    return [
        sum(value << bits * n for n, value in enumerate(values[start : start + count]))
        for start in range(0, len(values), count)
    ]


def expected(case: Case, row: Sequence[int], other: Sequence[int], before: int) -> int:
    sign = Fraction(case.signs[0] * case.signs[1])
    terms = [
        (_times(number(case.kind, x), sign), number(case.b.kind, y))
        for x, y in zip(row, other, strict=True)
    ]
    if case.adds:
        terms.append((number(case.result, before), Fraction(1)))
    return bits_of(total(terms), case.result, case.saturates)


def _times(value: Fraction | float, sign: Fraction) -> Fraction | float:
    return value * sign if isinstance(value, Fraction) else value * float(sign)


def results(case: Case, out: np.ndarray) -> list[list[int]]:
    """The sum by rows, from the registers of all threads."""
    actual = [[0] * case.columns for _ in range(64)]
    for thread in range(THREADS):
        words = out[thread].tolist()
        values = (
            [w >> s & 0xFFFF for w in words for s in (0, 16)] if case.result == "f16" else words
        )
        for (i, j), bits in zip(held_sum(thread, case.columns), values, strict=True):
            actual[i][j] = bits
    return actual


CASES = [
    *(Case(32, kind, mode=mode) for kind in ("f16", "tf32") for mode in range(4)),
    *(Case(64, "f16", mode=mode, across=(True, True)) for mode in range(4)),
    Case(8, "bf16"), Case(256, "bf16", mode=2), Case(128, "bf16", across=(False, True)),
    Case(16, "f16", "f16"), Case(24, "f16", "f16", large=True, in_registers=True),
    Case(16, "f16", large=True), Case(16, "bf16", large=True), Case(8, "tf32", large=True),
    *(Case(16, kind, in_registers=True) for kind in ("f16", "bf16", "tf32")),
    Case(16, "f16", in_registers=True, across=(False, True)), Case(16, "bf16", signs=(-1, 1)),
    Case(8, "tf32", signs=(-1, -1), adds=False), Case(16, "f16", adds=False),
    *(Case(16, first, "s32", second) for first in ("s8", "u8") for second in ("s8", "u8")),
    Case(32, "s8", "s32", in_registers=True, mode=3), Case(8, "u8", "s32", large=True),
    Case(8, "u8", "s32", large=True, saturates=True),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name[28:])
def test_products(case: Case) -> None:
    inputs, wanted = arguments(case)
    execute(text_of(case), inputs, shared=SHARED)
    actual = results(case, inputs[0])
    for i, row in wanted.items():
        for j, pair in enumerate(zip(row, actual[i], strict=True)):
            assert agrees_as(case.result, *pair), (i, j, *map(hex, pair))


PLAIN = Case(16, "f16")


def test_products_of_one_sum_follow_each_other() -> None:
    inputs, _ = arguments(PLAIN)
    once, twice = inputs[0], inputs[0].copy()
    first, commit = PLAIN.instruction(), "wgmma.commit_group.sync.aligned;"
    execute(text_of(PLAIN), [once, *inputs[1:]], shared=SHARED)
    late = [commit, "wgmma.wait_group.sync.aligned 1;"]
    execute(text_of(PLAIN, [first, *late]), [twice, *inputs[1:]], shared=SHARED)
    before, one, two = (each.view("f4").astype("f8") for each in (inputs[2], once, twice))
    np.testing.assert_array_equal(two - one, one - before)


def test_a_sum_has_no_value_before_it_is_waited_for() -> None:
    inputs, _ = arguments(PLAIN)
    execute(text_of(PLAIN, leave=["wgmma.commit_group.sync.aligned;"]), inputs, shared=SHARED)
    assert np.isnan(inputs[0].view("f4")).all()


def test_a_matrix_that_is_overwritten_before_the_wait_is_noticed() -> None:
    inputs, wanted = arguments(PLAIN)
    zero = ["st.shared.b32 [%r3+16384], 0;", "st.shared.b32 [%r3], 0;"]
    execute(text_of(PLAIN, leave=[LEAVE[0], *zero, LEAVE[1]]), inputs, shared=SHARED)
    assert results(PLAIN, inputs[0])[0] != wanted[0]


COPY = [
    "cp.async.cg.shared.global [%r3], [%rd1], 16;", "cp.async.commit_group;",
]  # fmt: skip


def test_warpgroup_misuse_is_an_error() -> None:
    inputs, _ = arguments(PLAIN)
    with pytest.raises(MemoryFault, match="outside of 16384 bytes of shared"):
        short = (
            text_of(PLAIN)
            .replace("ld.global.v4", "@%p3 ld.global.v4")
            .replace("st.shared", "@%p3 st.shared")
        )
        execute(short, inputs, shared=B_AT)
    with pytest.raises(Hazard, match="waited for"):
        execute(text_of(PLAIN, COPY), inputs, shared=SHARED)
    with pytest.raises(BarrierFault, match="warpgroup"):
        lines = text_of(PLAIN).replace("wgmma.mma", "setp.lt.s32 %p2, %r1, 32;\n@%p2 wgmma.mma")
        execute(lines, inputs, shared=SHARED)
    with pytest.raises(MemoryFault, match="not the same"):
        uneven = ["cvt.u64.u32 %rd18, %r1;", "add.s64 %rd11, %rd11, %rd18;"]
        execute(text_of(PLAIN, uneven), inputs, shared=SHARED)


WRONG = [
    replace(PLAIN, columns=12), replace(PLAIN, columns=264), replace(PLAIN, result="s32"),
    replace(PLAIN, kind="tf32", second="f16"), replace(PLAIN, saturates=True),
    replace(PLAIN, signs=(2, 1)),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name[28:])
def test_unknown_forms_are_refused(case: Case) -> None:
    with pytest.raises(UnsupportedInstruction, match="wgmma"):
        execute(text_of(case), [column([0])] * 4, shared=SHARED)
