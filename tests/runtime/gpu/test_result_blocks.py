"""Blocks of pinned memory for results, which return when nothing uses them any more."""

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from runtime.gpu import result_blocks
from runtime.gpu.result_blocks import ResultBlocks
from tests.runtime.gpu.fake_cuda import FakeCuda, Stream

SIZE = 1 << 12


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    created = FakeCuda("late")
    created.patch(monkeypatch)
    with created:
        yield created


def taken(blocks: ResultBlocks, nbytes: int = SIZE) -> np.ndarray:
    block = blocks.take(nbytes)
    assert block is not None
    return block[0]


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_block_is_reused_once_its_array_is_dropped(device: FakeCuda) -> None:
    blocks = ResultBlocks("cuda:0")
    first = taken(blocks)
    second = taken(blocks, SIZE - 100)
    assert second.shape == (SIZE - 100,) and address(first) != address(second)
    before = address(first)
    del first
    assert address(taken(blocks)) == before
    assert blocks.nbytes == 2 * SIZE


@pytest.mark.parametrize("view", [
    lambda array: array[8:16],
    lambda array: array.view("f4").reshape(2, -1).T[1:],
    lambda array: memoryview(array)[4:],
    lambda array: np.lib.stride_tricks.as_strided(array, (4,), (8,)),
    lambda array: array.view(type("Own", (np.ndarray,), {}))[::2],
    lambda array: np.frombuffer(array, "i8"),
    lambda array: __import__("torch").from_numpy(array),
    lambda array: array.base,
])  # fmt: skip
def test_a_view_keeps_the_block(device: FakeCuda, view: Any) -> None:
    blocks = ResultBlocks("cuda:0")
    array = taken(blocks)
    before, other = address(array), taken(blocks)
    view_of_array = view(array)
    del array
    gc.collect()
    assert blocks.take(SIZE) is None
    del view_of_array
    gc.collect()
    assert address(taken(blocks)) == before != address(other)


def test_results_that_are_kept_take_few_blocks(device: FakeCuda) -> None:
    """To allocate pinned memory takes longer than a copy."""
    blocks = ResultBlocks("cuda:0")
    kept = [blocks.take(SIZE) for _ in range(9)]
    assert [each is not None for each in kept] == [True] * 2 + [False] * 7


def test_there_are_as_many_blocks_as_a_script_uses_by_turns(device: FakeCuda) -> None:
    """It keeps the last five results."""
    blocks, window, missing = ResultBlocks("cuda:0"), list[Any](), list[bool]()
    for _ in range(40):
        window = [*window[-4:], blocks.take(SIZE)]
        missing.append(window[-1] is None)
    assert not any(missing[20:]) and blocks.nbytes <= 6 * SIZE


def test_blocks_are_bounded_and_free_ones_make_room(device: FakeCuda) -> None:
    blocks = ResultBlocks("cuda:0", 4 * SIZE)
    large = taken(blocks, 2 * SIZE)
    taken(blocks, 2 * SIZE)
    assert blocks.take(SIZE) is not None  # the free one was dropped
    assert blocks.nbytes == 3 * SIZE and blocks.take(4 * SIZE) is None
    assert large.nbytes == 2 * SIZE


def test_without_pinned_memory_there_is_no_block(device: FakeCuda, monkeypatch: Any) -> None:
    def fails(*_: Any) -> None:
        raise result_blocks.TooLarge("no memory")

    monkeypatch.setattr(result_blocks, "pinned_memory", fails)
    assert ResultBlocks("cuda:0").take(SIZE) is None


def test_a_block_dropped_early_is_reused_after_its_copy(device: FakeCuda) -> None:
    """A step that raises drops its results, which the device still writes."""
    blocks, stream, ran = ResultBlocks("cuda:0"), Stream(device), list[str]()
    pair = blocks.take(SIZE)
    assert pair is not None
    stream.enqueue("run", lambda: ran.append("copied"))
    pair[1].record(stream)
    del pair
    taken(blocks)
    assert ran == ["copied"]


def test_threads_take_blocks_of_their_own(device: FakeCuda) -> None:
    blocks, wrong = ResultBlocks("cuda:0"), list[int]()

    def work(number: int) -> None:
        with device:
            for _ in range(50):
                pair = blocks.take(SIZE)
                if pair is not None:
                    pair[0][:] = number
                    wrong.extend([number] * (not (pair[0] == number).all()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
