"""Loads and stores of every width, vectors, and cp.async with zero fill."""

import random

import numpy as np
import pytest

from tests.tools.ptx.instruction_text import THREADS, address, kernel
from tests.tools.ptx.integers import Whole
from tests.tools.ptx.runner import Array, column, execute

REGISTER = {8: "rs", 16: "rs", 32: "r", 64: "rd"}
VECTORS = [(bits, count) for bits in (8, 16, 32, 64) for count in (1, 2, 4) if bits * count <= 128]
COUNT = 2 * THREADS


def braces(bits: int, count: int) -> str:
    names = [f"%{REGISTER[bits]}{12 + n}" for n in range(count)]
    return "{" + ", ".join(names) + "}" if count > 1 else names[0]


def suffix(bits: int, count: int) -> str:
    return f"v{count}.b{bits}" if count > 1 else f"b{bits}"


def random_bytes(size: int) -> Array:
    return np.frombuffer(random.Random(size).randbytes(size), "u1").copy()


@pytest.mark.parametrize("bits, count", VECTORS)
def test_vectors_in_global_memory(bits: int, count: int) -> None:
    """Copied as vectors, one element further for each odd thread's neighbour."""
    size, kind = bits * count // 8, suffix(bits, count)
    body = [
        "xor.b32 %r5, %r0, 1;", f"mad.wide.s32 %rd21, %r5, {size}, %rd1;", *address(0, size, 20),
        f"ld.global.{kind} {braces(bits, count)}, [%rd21];", f"st.global.{kind} [%rd20], {braces(bits, count)};",
    ]  # fmt: skip
    memory = random_bytes(size * COUNT)
    out = np.zeros_like(memory)
    execute(kernel("one", 2, body), [out, memory], 2)
    expected = memory.reshape(-1, 2, size)[:, ::-1]
    assert np.array_equal(out.reshape(-1, 2, size), expected)


@pytest.mark.parametrize("bits, count", VECTORS)
def test_vectors_in_shared_memory(bits: int, count: int) -> None:
    """Elements stored singly are loaded as a vector of another thread, and the other way round."""
    size, name = bits * count // 8, REGISTER[bits]
    body = [
        "mov.b32 %r3, room;", f"mad.lo.s32 %r4, %r1, {size}, %r3;", "sub.s32 %r5, 127, %r1;",
        f"mad.lo.s32 %r6, %r5, {size}, %r3;", *address(1, size, 21), *address(0, size, 20), *address(2, size, 22),
        *(f"ld.global.b{bits} %{name}{12 + n}, [%rd21+{n * bits // 8}];" for n in range(count)),
        *(f"st.shared.b{bits} [%r4+{n * bits // 8}], %{name}{12 + n};" for n in range(count)),
        "bar.sync 0;", f"ld.shared.{suffix(bits, count)} {braces(bits, count)}, [%r6];",
        *(f"st.global.b{bits} [%rd20+{n * bits // 8}], %{name}{12 + n};" for n in range(count)),
        "bar.sync 0;", f"st.shared.{suffix(bits, count)} [%r4], {braces(bits, count)};", "bar.sync 0;",
        f"ld.shared.{suffix(bits, count)} {braces(bits, count)}, [%r6];",
        *(f"st.global.b{bits} [%rd22+{n * bits // 8}], %{name}{12 + n};" for n in range(count)),
    ]  # fmt: skip
    memory = random_bytes(size * COUNT)
    turned, back = np.zeros_like(memory), np.zeros_like(memory)
    execute(kernel("one", 3, body, shared=True), [turned, memory, back], 2, shared=size * THREADS)
    assert np.array_equal(turned.reshape(2, -1, size), memory.reshape(2, -1, size)[:, ::-1])
    assert np.array_equal(back, memory)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("kind", ["s8", "u8", "b8", "s16", "u16", "b16"])
def test_narrow_loads_are_extended(kind: str, space: str) -> None:
    """To 32 bits, by the sign for signed types."""
    whole = Whole(kind)
    size = whole.bits // 8
    body = [*address(1, size, 21), *address(0, 4, 20), "mov.b32 %r12, -1431655766;"]
    if space == "global":
        body += [f"ld.global.{kind} %r12, [%rd21];"]
    else:
        body += [
            "mov.b32 %r3, room;", f"mad.lo.s32 %r4, %r1, {size}, %r3;", f"ld.global.b{whole.bits} %rs12, [%rd21];",
            f"st.shared.b{whole.bits} [%r4], %rs12;", f"ld.shared.{kind} %r12, [%r4];",
        ]  # fmt: skip
    values = [n * 257 & ((1 << whole.bits) - 1) for n in range(COUNT)]
    out = np.zeros(COUNT, "u4")
    text = kernel("one", 2, [*body, "st.global.b32 [%rd20], %r12;"], shared=space == "shared")
    execute(
        text,
        [out, column(values, f"u{size}")],
        2,
        shared=size * THREADS if space == "shared" else 0,
    )
    assert out.tolist() == [Whole("b32").wrapped(whole.value(n)) for n in values]


def test_narrow_stores_cut_wide_registers() -> None:
    body = [
        *address(0, 1, 20),
        *address(1, 4, 21),
        "ld.global.b32 %r12, [%rd21];",
        "st.global.b8 [%rd20], %r12;",
    ]
    out, values = np.zeros(COUNT, "u1"), [n * 0x01030507 & 0xFFFFFFFF for n in range(COUNT)]
    execute(kernel("one", 2, body), [out, column(values)], 2)
    assert out.tolist() == [n & 255 for n in values]


def test_loads_without_their_predicate_keep_the_register_and_touch_nothing() -> None:
    """Every third thread's address lies outside; it keeps what it had."""
    body = [
        *address(0, 4, 20), *address(1, 4, 21), "rem.u32 %r5, %r0, 3;", "setp.ne.b32 %p1, %r5, 0;",
        "selp.b64 %rd22, %rd21, 0, %p1;", "mov.b32 %r12, 77;", "@%p1 ld.global.b32 %r12, [%rd22];",
        "setp.gt.u32 %p2, %r0, 9;", "selp.b64 %rd23, %rd20, 0, %p2;", "@!%p2 bra $L__end;",
        "st.global.b32 [%rd23], %r12;", "$L__end:",
    ]  # fmt: skip
    out, values = np.zeros(COUNT, "u4"), list(range(1000, 1000 + COUNT))
    execute(kernel("one", 2, body), [out, column(values)], 2)
    expected = [n if place % 3 else 77 for place, n in enumerate(values)]
    assert out.tolist() == [0] * 10 + expected[10:]


CP_ASYNC = [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)]


@pytest.mark.parametrize("cache, size", CP_ASYNC)
def test_cp_async_fills_with_zeros(cache: str, size: int) -> None:
    """Source sizes from 0 to the whole; a source of 0 bytes is never read."""
    sizes = [n % (size + 1) for n in range(COUNT)]
    body = [
        "mov.b32 %r3, room;", f"mad.lo.s32 %r4, %r1, {size}, %r3;", *address(1, size, 21), *address(2, 4, 22),
        *address(0, size, 20), "ld.global.b32 %r5, [%rd22];", "setp.ne.b32 %p1, %r5, 0;", "selp.b64 %rd21, %rd21, 0, %p1;",
        *(f"st.shared.b32 [%r4+{n}], -1;" for n in range(0, size, 4)),
        f"cp.async.{cache}.shared.global [ %r4 + 0 ], [ %rd21 + 0 ], 0x{size:x}, %r5;",
        "cp.async.commit_group;", "cp.async.wait_group 0;", "bar.sync 0;",
        *(line for n in range(0, size, 4) for line in (f"ld.shared.b32 %r12, [%r4+{n}];", f"st.global.b32 [%rd20+{n}], %r12;")),
    ]  # fmt: skip
    memory = random_bytes(size * COUNT)
    out = np.zeros_like(memory)
    execute(
        kernel("one", 3, body, shared=True), [out, memory, column(sizes)], 2, shared=size * THREADS
    )
    kept = np.arange(size) < np.array(sizes)[:, None]
    assert np.array_equal(out.reshape(-1, size), np.where(kept, memory.reshape(-1, size), 0))


def test_cp_async_groups_are_waited_for_in_order() -> None:
    """Two groups in flight: `wait_group 1` is for the first, and its data is there."""
    body = [
        "mov.b32 %r3, room;", "mad.lo.s32 %r4, %r1, 16, %r3;", *address(1, 16, 21), *address(0, 16, 20),
        "cp.async.ca.shared.global [%r4], [%rd21], 8;", "cp.async.commit_group;",
        "cp.async.ca.shared.global [%r4+8], [%rd21+8], 8;", "cp.async.commit_group;",
        "cp.async.wait_group 1;", "ld.shared.v2.b32 {%r12, %r13}, [%r4];", "st.global.v2.b32 [%rd20], {%r12, %r13};",
        "cp.async.wait_group 0;", "ld.shared.v2.b32 {%r12, %r13}, [%r4+8];", "st.global.v2.b32 [%rd20+8], {%r12, %r13};",
    ]  # fmt: skip
    memory = random_bytes(16 * COUNT)
    out = np.zeros_like(memory)
    execute(kernel("one", 2, body, shared=True), [out, memory], 2, shared=16 * THREADS)
    assert np.array_equal(out, memory)


def test_moves_join_and_split_registers() -> None:
    """Mov of {low, high} to one register of twice the size, and back."""
    body = [
        *address(0, 8, 20), *address(1, 8, 21), "ld.global.b64 %rd22, [%rd21];", "mov.b64 {%r12, %r13}, %rd22;",
        "mov.b32 {%rs12, %rs13}, %r12;", "mov.b32 %r14, {%rs13, %rs12};", "mov.b64 %rd23, {%r13, %r14};", "st.global.b64 [%rd20], %rd23;",
    ]  # fmt: skip
    values = [0x0123456789ABCDEF * (n + 1) & ((1 << 64) - 1) for n in range(COUNT)]
    out = np.zeros(COUNT, "u8")
    execute(kernel("one", 2, body), [out, column(values, "u8")], 2)
    assert out.tolist() == [
        (n >> 32) | ((n >> 16 & 0xFFFF) << 32) | ((n & 0xFFFF) << 48) for n in values
    ]
