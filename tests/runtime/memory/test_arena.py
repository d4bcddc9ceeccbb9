"""Arena: aligned views that do not touch one another, growth, poison, and limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.pack import Lifetime, pack
from runtime.memory.arena import ALIGN, Arena

LIVES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(0, 300)).map(
        lambda t: Lifetime(t[0], t[0] + t[1], t[2])
    ),
    max_size=12,
)


def reserved(nbytes: int, poison: bool = False) -> Arena:
    arena = Arena(poison)
    arena.reserve(nbytes)
    return arena


def test_views_are_aligned_writable_and_share_the_block() -> None:
    arena = reserved(256)
    view = arena.take(64, "float32", (2, 3))
    assert view.ctypes.data % ALIGN == 0
    assert view.flags.c_contiguous and view.flags.writeable
    view[:] = 7
    assert (arena.take(64, "float32", (6,)) == 7).all()


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_views_of_few_or_no_elements(shape: tuple[int, ...]) -> None:
    assert reserved(64).take(0, "int64", shape).shape == shape


def test_an_empty_arena_returns_empty_views() -> None:
    assert reserved(0).take(0, "float32", (0, 4)).size == 0


def test_growth_keeps_old_views_whole() -> None:
    arena = reserved(64)
    old = arena.take(0, "uint8", (64,))
    old[:] = 1
    arena.reserve(128)
    arena.take(0, "uint8", (128,))[:] = 2
    assert (old == 1).all() and arena.nbytes == 128


def test_an_arena_never_shrinks() -> None:
    arena = reserved(128)
    before = arena.take(0, "uint8", (1,)).ctypes.data
    arena.reserve(64)
    assert (arena.nbytes, arena.take(0, "uint8", (1,)).ctypes.data) == (128, before)


def test_poison_fills_unwritten_memory() -> None:
    arena = reserved(64, poison=True)
    assert np.isnan(arena.take(0, "float32", (16,))).all()
    arena.take(0, "float32", (16,))[:] = 0
    arena.reserve(32)
    assert np.isnan(arena.take(0, "float32", (16,))).all()


@pytest.mark.parametrize(("offset", "shape"), [(0, (17,)), (64, (1,)), (32, (9,))])
def test_arena_rejects_overflow(offset: int, shape: tuple[int, ...]) -> None:
    message = rf"an array of shape \({shape[0]},\) at byte {offset} does not fit in 64"
    with pytest.raises(ValueError, match=message):
        reserved(64).take(offset, "float32", shape)


def test_a_negative_offset_is_rejected() -> None:
    with pytest.raises(ValueError, match="not negative, as -64 is"):
        reserved(64).take(-64, "uint8", (1,))


@given(LIVES)
def test_values_alive_together_do_not_touch(lives: list[Lifetime]) -> None:
    packing = pack(lives)
    arena = reserved(packing.height)
    pairs = zip(lives, packing.offsets, strict=True)
    views = [arena.take(offset, "uint8", (life.size,)) for life, offset in pairs]
    for step in range(15):
        alive = [i for i, life in enumerate(lives) if life.start <= step < life.stop]
        for index in alive:
            if lives[index].start == step:
                views[index][:] = index
        assert all((views[index] == index).all() for index in alive)
