"""Instructions of a whole warp beside the scalar model."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from tests.tools.ptx import warps
from tests.tools.ptx.instruction_text import THREADS, kernel, load, store
from tests.tools.ptx.operands import edges
from tests.tools.ptx.runner import column, execute
from tests.tools.ptx.warps import FULL, LANES

WARPS = THREADS // LANES
VALUES = [*edges("b32"), *(random.Random(5).getrandbits(32) for _ in range(THREADS))][:THREADS]


def by_warp(values: Sequence[int]) -> list[list[int]]:
    return [list(values[LANES * n : LANES * (n + 1)]) for n in range(len(values) // LANES)]


# Segments and clamps: whole warp, halves, eights, pairs, and clamps that leave lanes outside.
CLAMPS = [
    0x1F,
    0,
    0x101F,
    0x1000,
    0x181F,
    0x1800,
    0x1E1F,
    0x1E00,
    0x0F,
    0x07,
    0x1007,
    0x1F1F,
    0xE0E0,
]
STEPS = [0, 1, 2, 4, 8, 15, 16, 17, 31, 32, 33, 63, 0xFFFFFFFF]


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
def test_shuffles(mode: str) -> None:
    """Each warp has a clamp; steps are equal in a warp, then differ by lane."""
    pairs = [(step, clamp) for step in STEPS for clamp in CLAMPS]
    source = random.Random(mode)
    steps = [step for step, _ in pairs for _ in range(LANES)]
    clamps = [clamp for _, clamp in pairs for _ in range(LANES)]
    steps += [
        source.choice((source.randrange(64), source.choice(STEPS)))
        for _ in range(LANES * len(CLAMPS))
    ]
    clamps += [clamp for clamp in CLAMPS for _ in range(LANES)]
    missing = -len(steps) % THREADS
    steps, clamps = steps + [1] * missing, clamps + [0x1F] * missing
    values = [source.getrandbits(32) for _ in steps]
    body = [
        *load(2, "%r10"), *load(3, "%r11"), *load(4, "%r12"),
        f"shfl.sync.{mode}.b32 %r13|%p1, %r10, %r11, %r12, -1;",
        "selp.b32 %r14, 1, 0, %p1;", *store(0, "%r13"), *store(1, "%r14"),
    ]  # fmt: skip
    out, inside = np.zeros(len(steps), "u4"), np.zeros(len(steps), "u4")
    execute(
        kernel("one", 5, body),
        [out, inside, *map(column, (values, steps, clamps))],
        len(steps) // THREADS,
    )
    expected = [
        each
        for rows in zip(by_warp(values), by_warp(steps), by_warp(clamps), strict=True)
        for each in warps.shuffle(mode, *rows)
    ]
    assert list(zip(out.tolist(), inside.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    "mode, step, clamp", [("bfly", 16, 31), ("up", 4, 0), ("down", 3, 31), ("idx", 7, 31)]
)
def test_shuffles_with_immediates(mode: str, step: int, clamp: int) -> None:
    """As Triton writes them: a step and a clamp in the text, no predicate."""
    body = [
        *load(1, "%r10"),
        f"shfl.sync.{mode}.b32 %r11, %r10, {step}, {clamp}, -1;",
        *store(0, "%r11"),
    ]
    out = np.zeros(THREADS, "u4")
    execute(kernel("one", 2, body), [out, column(VALUES)])
    expected = [
        warps.shuffle(mode, rows, [step] * LANES, [clamp] * LANES) for rows in by_warp(VALUES)
    ]
    assert out.tolist() == [value for each in expected for value, _ in each]


PREDICATES = [[0] * LANES, [1] * LANES, [0] * 31 + [1], [n & 1 for n in range(LANES)]]


@pytest.mark.parametrize("mode", ["all", "any", "uni", "ballot"])
def test_votes(mode: str) -> None:
    target, kind = ("%r11", "b32") if mode == "ballot" else ("%p2", "pred")
    chosen = [] if mode == "ballot" else ["selp.b32 %r11, 1, 0, %p2;"]
    body = [
        *load(1, "%r10"),
        "setp.ne.b32 %p1, %r10, 0;",
        f"vote.sync.{mode}.{kind} {target}, %p1, -1;",
        *chosen,
    ]
    out = np.zeros(THREADS, "u4")
    execute(
        kernel("one", 2, [*body, *store(0, "%r11")]),
        [out, column([bit for predicate in PREDICATES for bit in predicate])],
    )
    assert out.tolist() == [
        warps.vote(mode, predicate, FULL) for predicate in PREDICATES for _ in range(LANES)
    ]


REDUX = [(name, kind) for kind in ("s32", "u32") for name in ("add", "min", "max")]
REDUX += [(name, "b32") for name in ("and", "or", "xor")]


@pytest.mark.parametrize("name, kind", REDUX)
def test_reductions_of_a_warp(name: str, kind: str) -> None:
    body = [*load(1, "%r10"), f"redux.sync.{name}.{kind} %r11, %r10, -1;", *store(0, "%r11")]
    out = np.zeros(THREADS, "u4")
    execute(kernel("one", 2, body), [out, column(VALUES)])
    assert out.tolist() == [
        warps.redux(name, kind, each, FULL) for each in by_warp(VALUES) for _ in each
    ]


def test_members_of_a_divergent_half_reduce_and_vote_alone() -> None:
    """Lanes below 16 branch away; each side names its own members."""
    body = [
        *load(1, "%r10"), "and.b32 %r11, %r1, 16;", "setp.eq.b32 %p1, %r11, 0;", "@%p1 bra $L__low;",
        "redux.sync.add.s32 %r12, %r10, -65536;", "activemask.b32 %r13;", "bra.uni $L__end;",
        "$L__low:", "redux.sync.add.s32 %r12, %r10, 65535;", "activemask.b32 %r13;",
        "$L__end:", *store(0, "%r12"), *store(2, "%r13"),
    ]  # fmt: skip
    out, active = np.zeros(THREADS, "u4"), np.zeros(THREADS, "u4")
    execute(kernel("one", 3, body), [out, column(VALUES), active])
    masks = [0xFFFF] * 16 + [0xFFFF0000] * 16
    assert out.tolist() == [
        warps.redux("add", "s32", rows, mask) for rows in by_warp(VALUES) for mask in masks
    ]
    assert active.tolist() == masks * WARPS
