"""Packings that serve more sizes than the ones they were made for."""

import numpy as np

from compiler.codegen.module import buffer_lifetimes
from compiler.ir.dims import Dim
from compiler.plan import Buffer
from runtime.memory import packings
from runtime.memory.packings import Packings, rounded

N, M = Dim.named("N"), Dim.named("M")
BUFFERS = (Buffer("a", N * 64, 0, 2), Buffer("b", N * M * 4, 1, 3), Buffer("c", M * 128, 2, 4))


def find(known: Packings, buffers: tuple[Buffer, ...] = BUFFERS, **sizes: int) -> packings.Packing:
    return known.find(buffer_lifetimes(buffers, sizes), sizes)


def counted(monkeypatch) -> list[int]:
    created: list[int] = []
    pack = packings.pack

    def counting(lives, **settings):
        created.append(len(lives))
        return pack(lives, **settings)

    monkeypatch.setattr(packings, "pack", counting)
    return created


def test_the_first_sizes_are_packed_exactly() -> None:
    exact = find(Packings(BUFFERS), N=37, M=5)
    assert exact.height == exact.bound


def test_near_sizes_share_a_packing(monkeypatch) -> None:
    created, known = counted(monkeypatch), Packings(BUFFERS)
    for rows in np.random.default_rng(0).integers(50, 80, 40):
        packing = find(known, N=int(rows), M=16)
        for life, place in zip(
            buffer_lifetimes(BUFFERS, {"N": int(rows), "M": 16}), packing.offsets, strict=True
        ):
            assert place + life.size <= packing.height
    assert len(created) <= 6


def test_fixed_sizes_are_packed_exactly() -> None:
    shrinking = (Buffer("a", N * 64, 0, 2), Buffer("b", (M - N) * 64, 1, 3))
    known = Packings(shrinking)
    find(known, shrinking, N=3, M=40)
    packing = find(known, shrinking, N=17, M=40)
    assert packing.height == packing.bound == 40 * 64


def test_an_order_found_before_serves_other_sizes(monkeypatch) -> None:
    created, known = counted(monkeypatch), Packings(BUFFERS)
    for rows in (8, 64, 512, 4096):
        packing = find(known, N=rows, M=rows)
        assert packing.height == packing.bound
    assert len(created) == 1


def test_sizes_that_no_known_order_suits_are_packed_near_the_bound(monkeypatch) -> None:
    lives = [(0, 4, 2), (2, 4, 1), (0, 1, 1), (1, 3, 3), (3, 6, 2), (5, 8, 3), (4, 7, 1)]
    sizes = [size + N * (index % 3) for index, (_, _, size) in enumerate(lives)]
    buffers = tuple(
        Buffer(f"b{i}", size * 64, start, stop)
        for i, ((start, stop, _), size) in enumerate(zip(lives, sizes, strict=True))
    )
    created, known = counted(monkeypatch), Packings(buffers)
    for count in (1, 100, 7):
        packing = find(known, buffers, N=count)
        assert packing.height <= packings.NEAR * packing.bound
    assert len(created) <= 3


def test_rounding_wastes_an_eighth_at_most() -> None:
    assert all(n <= rounded(n) <= n * 1.125 for n in range(1, 5000))
