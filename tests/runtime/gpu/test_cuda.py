"""The memory of a CUDA device: mirrors, the arena, pinned copies. Without a GPU the host is used."""

from typing import Any

import numpy as np
import pytest

import fluid
from runtime.device import CUDAPlace
from runtime.errors import PlaceError, TooLarge
from runtime.gpu.cuda import DeviceArena, current, device_of, host_block, interprets
from runtime.gpu.mirrors import Mirror

torch = pytest.importorskip("torch")


def device() -> str:
    return device_of(CUDAPlace(0))


@pytest.mark.device
def test_a_mirror_is_pushed_and_pulled_once() -> None:
    array = np.arange(6, dtype=np.float32)
    mirror = Mirror(array, device())
    mirror.push()
    assert not mirror.push()
    mirror.tensor.mul_(2)
    mirror.pull()
    assert not mirror.pull()
    np.testing.assert_array_equal(array, 2 * np.arange(6))


@pytest.mark.device
def test_an_arena_hands_out_tensors_over_its_bytes() -> None:
    arena = DeviceArena(device(), poison=True)
    arena.reserve(1024)
    held = arena.take(256, "float32", (4, 8))
    assert held.isnan().all()
    arena.take(256, "float32", (32,)).fill_(3)
    assert (held == 3).all()
    with pytest.raises(ValueError, match="does not fit in 1024"):
        arena.take(1000, "float32", (8,))


@pytest.mark.device
@pytest.mark.parametrize("make", [np.ascontiguousarray, np.asfortranarray])
def test_feeds_may_be_read_only_and_strided(make: Any) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [3, 5], "float32")
        y = fluid.layers.relu(x)
    fed = make(np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5))
    fed.flags.writeable = False
    (out,) = fluid.Executor(fluid.CUDAPlace(0)).run(main, {"x": fed}, [y])
    np.testing.assert_array_equal(out, np.maximum(fed, 0))


def test_the_host_needs_no_pages_of_its_own() -> None:
    assert host_block("cpu") is None
    with current("cpu"):
        assert torch.zeros(1).device.type == "cpu"


@pytest.mark.gpu
def test_the_arena_of_the_host_is_read_by_the_device() -> None:
    block = host_block("cuda:0")
    assert block is not None
    assert torch.from_numpy(block(4096)).is_pinned()


@pytest.mark.gpu
def test_more_than_the_device_has_is_reported() -> None:
    with pytest.raises(TooLarge, match="does not fit in the free memory of cuda:0"):
        DeviceArena("cuda:0").reserve(1 << 50)


@pytest.mark.gpu
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(PlaceError, match=r"CUDAPlace\(99\) cannot be used"):
        device_of(CUDAPlace(99))


@pytest.mark.gpu
def test_next_feed_does_not_change_the_running_step() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [4, 1 << 20], "float32")
        y = fluid.layers.reduce_sum(x, dim=1)
    executor, fed = fluid.Executor(fluid.CUDAPlace(0)), np.empty((4, 1 << 20), np.float32)
    for value in range(1, 8):
        fed[:] = value
        (out,) = executor.run(main, {"x": fed}, [y])
        np.testing.assert_array_equal(out, np.full(4, value * float(1 << 20), np.float32))


@pytest.mark.device
def test_every_buffer_may_be_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[DeviceArena] = []

    def reserve(arena: DeviceArena, nbytes: int, reserve: Any = DeviceArena.reserve) -> None:
        created.append(arena)
        reserve(arena, nbytes)

    monkeypatch.setattr(DeviceArena, "reserve", reserve)
    monkeypatch.setattr("runtime.gpu.cuda.SEPARATE_BUFFERS", True)
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [3, 5], "float32")
        y = fluid.layers.matmul(fluid.layers.softmax(x), fluid.layers.relu(x), transpose_y=True)
    fed = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)
    (out,) = fluid.Executor(fluid.CUDAPlace(0)).run(main, {"x": fed}, [y])
    soft = np.exp(fed) / np.exp(fed).sum(1, keepdims=True)
    np.testing.assert_allclose(out, soft @ np.maximum(fed, 0).T, rtol=1e-5)
    sizes = [arena.nbytes for arena in created[1:]]  # the first is the arena
    assert len(sizes) >= 3 and {60, 36} <= set(sizes)


class Stream:
    """A stream that records which others it waits for."""

    def __init__(self) -> None:
        self.awaited: list[Stream] = []

    def wait_stream(self, other: "Stream") -> None:
        self.awaited.append(other)


@pytest.mark.skipif(not interprets(), reason="streams are faked where kernels are interpreted")
def test_steps_on_another_stream_wait_for_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = first, second = Stream(), Stream()
    for module in ("runtime.loader", "runtime.gpu.cuda"):
        monkeypatch.setattr(f"{module}.current_stream", lambda device: streams[turn])
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [2, 3]), 4))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.1).minimize(loss)
        executor, turn = fluid.Executor(fluid.CUDAPlace(0)), 0
        executor.run(startup)
        fed = {"x": np.ones((2, 3), np.float32)}
        executor.run(main, fed, [loss])
        executor.run(main, fed, [loss])
        assert not first.awaited, "one stream runs its kernels in order"
        turn = 1
        executor.run(test, fed, [loss])
        assert second.awaited == [first], "the other program has the same state"
        executor.run(main, fed, [loss])
        assert second.awaited == [first, first], "and this one an arena"
        turn = 0
        executor.run(main, fed, [loss])
        assert first.awaited == [second, second]
