"""Carries between instructions beside sums of Python integers."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.tools.ptx import warps
from tests.tools.ptx.instruction_text import THREADS, address, kernel, store
from tests.tools.ptx.operands import edges
from tests.tools.ptx.runner import column, execute
from tests.tools.ptx.warps import FULL

CARRIES: dict[str, tuple[list[str], Callable[[int, int], int]]] = {
    "add": (["add.cc.u32 %r14, %r10, %r12;", "addc.u32 %r15, %r11, %r13;"], warps.sum_of_pairs),
    "sub": (["sub.cc.u32 %r14, %r10, %r12;", "subc.u32 %r15, %r11, %r13;"], warps.difference_of_pairs),
    "mad": (
        [
            "mul.lo.u32 %r14, %r10, %r12;", "mul.hi.u32 %r16, %r10, %r12;",
            "mad.lo.u32 %r16, %r10, %r13, %r16;", "mad.lo.u32 %r15, %r11, %r12, %r16;",
        ],
        warps.product_of_pairs,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CARRIES)
def test_carries(name: str) -> None:
    lines, model = CARRIES[name]
    source = random.Random(name)
    chosen = edges("b64")
    rows = [(source.choice(chosen), source.choice(chosen)) for _ in range(2 * THREADS)]
    out, a, b = np.zeros(len(rows), "u8"), *(column(each, "u8") for each in zip(*rows, strict=True))
    body = [
        *address(1, 8, 21), "ld.global.v2.b32 {%r10, %r11}, [%rd21];",
        *address(2, 8, 22), "ld.global.v2.b32 {%r12, %r13}, [%rd22];",
        *lines, *address(0, 8, 20), "st.global.v2.b32 [%rd20], {%r14, %r15};",
    ]  # fmt: skip
    execute(kernel("one", 3, body), [out, a, b], 2)
    assert out.tolist() == [model(*row) for row in rows]


def test_products_of_128_bits_carry_through() -> None:
    """mad.lo.cc, madc.hi.cc and madc.hi: 64 bits times 32 plus 96, as trigonometric reduction does."""
    source = random.Random(3)
    chosen = edges("b64")
    rows = [(source.choice(chosen), source.choice(chosen)) for _ in range(THREADS)]
    body = [
        *address(3, 8, 21), "ld.global.v2.b32 {%r10, %r11}, [%rd21];",
        *address(4, 8, 22), "ld.global.v2.b32 {%r12, %r13}, [%rd22];",
        "mad.lo.cc.u32 %r14, %r10, %r12, %r13;", "madc.hi.u32 %r15, %r10, %r12, 0;",
        "mad.lo.cc.u32 %r15, %r11, %r12, %r15;", "madc.hi.cc.u32 %r16, %r11, %r12, %r13;", "addc.u32 %r17, %r13, 0;",
        "sub.cc.u32 %r18, %r14, %r12;", "subc.cc.u32 %r18, %r15, %r13;", "subc.u32 %r18, %r16, 0;",
        *store(0, "%r15"), *store(1, "%r17"), *store(2, "%r18"),
    ]  # fmt: skip
    outs = [np.zeros(THREADS, "u4") for _ in range(3)]
    execute(
        kernel("one", 5, body), [*outs, *(column(each, "u8") for each in zip(*rows, strict=True))]
    )
    got = zip(*(out.tolist() for out in outs), strict=True)
    assert list(got) == [_long_product(*row) for row in rows]


def _long_product(first: int, second: int) -> tuple[int, int, int]:
    low, high, b, c = first & FULL, first >> 32, second & FULL, second >> 32
    r14, r15 = (low * b + c) & FULL, (((low * b) >> 32) + (((low * b) & FULL) + c >> 32)) & FULL
    middle = ((high * b) & FULL) + r15
    top = ((high * b) >> 32) + c + (middle >> 32)
    borrow = (r14 | ((middle & FULL) << 32)) - (b | (c << 32)) < 0
    return middle & FULL, (c + (top >> 32)) & FULL, ((top & FULL) - borrow) & FULL
