"""atom and red of every operator and type beside the scalar model."""

import random
from fractions import Fraction

import numpy as np
import pytest

from tests.tools.ptx.atomics import updated
from tests.tools.ptx.floats import FORMATS
from tests.tools.ptx.instruction_text import THREADS, address, kernel
from tests.tools.ptx.operands import edges, random_bits, width
from tests.tools.ptx.runner import agrees_as, execute

NAMES = """
add.f32 add.f64 add.s32 add.u32 add.u64 add.noftz.f16 add.noftz.bf16 add.noftz.f16x2 add.noftz.bf16x2 min.s32 max.s32 min.u32 max.u32
min.s64 max.s64 min.u64 max.u64 and.b32 or.b32 xor.b32 and.b64 or.b64 xor.b64 exch.b32 exch.b64
cas.b16 cas.b32 cas.b64 inc.u32 dec.u32
""".split()
ORDERS = ["relaxed", "acq_rel"]
REGISTER = {16: "rs", 32: "r", 64: "rd"}


def rows_of(name: str, count: int) -> list[tuple[int, ...]]:
    """Old values and operands; every third pair is equal, for cas and min."""
    kind, source = name.rpartition(".")[2], random.Random(name)
    chosen = edges(kind)
    rows: list[tuple[int, ...]] = []
    for n in range(count):
        old, b, c = (
            source.choice(chosen) if n % 2 else random_bits(source, kind) for _ in range(3)
        )
        rows.append((old, old if n % 3 == 0 else b, c))
    return rows


def atomic_kernel(name: str, order: str, space: str, returns: bool) -> str:
    """Array 0 is the memory, 1 takes old values, 2 and 3 hold operands."""
    bits = width(name.rpartition(".")[2])
    prefix, size = REGISTER[bits], bits // 8
    operands = f"%{prefix}12, %{prefix}13" if name.startswith("cas") else f"%{prefix}12"
    where, enter, leave = "%rd20", [], []
    if space == "shared":
        where = "%r4"
        enter = [
            "mov.b32 %r3, room;",
            f"mad.lo.s32 %r4, %r1, {size}, %r3;",
            f"ld.global.b{bits} %{prefix}15, [%rd20];",
            f"st.shared.b{bits} [%r4], %{prefix}15;",
        ]
        leave = [
            f"ld.shared.b{bits} %{prefix}16, [%r4];",
            f"st.global.b{bits} [%rd20], %{prefix}16;",
        ]
    verb, target = ("atom", f"%{prefix}14, ") if returns else ("red", "")
    body = [
        *(line for n in range(4) for line in address(n, size, 20 + n)),
        f"ld.global.b{bits} %{prefix}12, [%rd22];", f"ld.global.b{bits} %{prefix}13, [%rd23];", *enter,
        f"{verb}.{space}.gpu.{order}.{name} {target}[{where}], {operands};",
        *([f"st.global.b{bits} [%rd21], %{prefix}14;"] if returns else []), *leave,
    ]  # fmt: skip
    return kernel("one", 4, body, shared=space == "shared")


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("name", NAMES)
def test_atomics_of_one_thread_each(name: str, space: str) -> None:
    kind = name.rpartition(".")[2]
    rows = rows_of(name, 2 * THREADS)
    model = updated(name)
    for returns in (True, False) if not name.startswith(("exch", "cas")) else (True,):
        order = ORDERS[returns] if space == "global" else "relaxed"
        memory, b, c = (np.array(each, f"u{width(kind) // 8}") for each in zip(*rows, strict=True))
        old = np.zeros_like(memory)
        text = atomic_kernel(name, order, space, returns)
        execute(text, [memory, old, b, c], 2, shared=THREADS * 8)
        assert not returns or old.tolist() == [row[0] for row in rows]
        expected = [model(*row) if name.startswith("cas") else model(*row[:2]) for row in rows]
        for row, want, got in zip(rows, expected, memory.tolist(), strict=True):
            assert agrees_as(kind, want, got), (
                name,
                [hex(n) for n in row],
                want and hex(want),
                hex(got),
            )


@pytest.mark.parametrize("name", ["add.u32", "add.f32", "max.s32", "inc.u32", "add.u64"])
def test_threads_at_one_address_take_turns(name: str) -> None:
    """All threads of two blocks change one element: each old value is one that another left."""
    kind = name.rpartition(".")[2]
    bits = width(kind)
    prefix, size = REGISTER[bits], bits // 8
    body = [
        *address(1, size, 21), *address(2, size, 22), f"ld.global.b{bits} %{prefix}12, [%rd22];",
        f"atom.global.gpu.relaxed.{name} %{prefix}14, [%rd0], %{prefix}12;", f"st.global.b{bits} [%rd21], %{prefix}14;",
    ]  # fmt: skip
    count = 2 * THREADS
    whole = [random.Random(name).randrange(1, 100) for _ in range(count)]
    inputs = [FORMATS["f32"].rounded(Fraction(n)) for n in whole] if kind == "f32" else whole
    if name.startswith("inc"):
        inputs = [300] * count
    memory, old = np.zeros(1, f"u{size}"), np.zeros(count, f"u{size}")
    execute(kernel("one", 3, body), [memory, old, np.array(inputs, f"u{size}")], 2)
    model, states = updated(name), dict[int, int]()
    if name.startswith("max"):
        assert int(memory[0]) == max(inputs)
        return
    for before, b in zip(old.tolist(), inputs, strict=True):
        after = model(before, b)
        assert after is not None
        states[before] = states.get(before, 0) - 1
        states[after] = states.get(after, 0) + 1
    assert {state: n for state, n in states.items() if n} == {int(memory[0]): 1, 0: -1}


VECTORS = [("f32", 2), ("f32", 4), ("f16", 4), ("f16", 8), ("bf16", 2), ("f16x2", 4), ("bf16x2", 2)]


@pytest.mark.parametrize("kind, count", VECTORS)
def test_vectors_of_neighbours(kind: str, count: int) -> None:
    """Each thread adds to as many elements as the vector has, and gets all old values."""
    bits, name = width(kind), f"add.{'noftz.' if kind != 'f32' else ''}{kind}"
    prefix, size = REGISTER[bits], bits // 8
    rows = rows_of(name, THREADS * count)
    memory, b = (np.array(each, f"u{size}") for each in list(zip(*rows, strict=True))[:2])
    old = np.zeros_like(memory)
    parts, taken = ([f"%{prefix}{first + n}" for n in range(count)] for first in (2, 12))
    body = [
        *(line for n in range(3) for line in address(n, size * count, 20 + n)),
        *(f"ld.global.b{bits} {part}, [%rd22+{n * size}];" for n, part in enumerate(parts)),
        f"atom.global.gpu.relaxed.{name.replace(kind, f'v{count}.{kind}')} "
        f"{{{', '.join(taken)}}}, [%rd20], {{{', '.join(parts)}}};",
        *(f"st.global.b{bits} [%rd21+{n * size}], {each};" for n, each in enumerate(taken)),
    ]
    before = memory.tolist()
    execute(kernel("one", 3, body), [memory, old, b])
    assert old.tolist() == before
    for row, got in zip(rows, memory.tolist(), strict=True):
        assert agrees_as(kind, updated(name)(*row[:2]), got), [hex(n) for n in (*row, got)]
