"""Steps that are captured, replayed, evicted and dropped by several threads, on a fake GPU.

What one thread does while another captures is run inside that capture, so no test depends on luck.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from runtime.errors import TooLarge  # noqa: E402
from runtime.gpu.capture_lock import CAPTURES  # noqa: E402
from runtime.gpu.captures import CapturedLines  # noqa: E402
from runtime.gpu.copies import Copies  # noqa: E402
from runtime.gpu.cuda import DeviceArena, capture_stream, host_block, new_stream  # noqa: E402
from runtime.gpu.graphs import StepGraph  # noqa: E402
from runtime.gpu.streams import StreamOrder  # noqa: E402
from tests.runtime.gpu.fake_cuda import CAPTURING, ORDERS, FakeCuda, Stream  # noqa: E402

DEVICE = "cuda:0"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    created = FakeCuda("late")
    created.patch(monkeypatch)
    with created:
        yield created
    assert not CAPTURES.is_mine
    assert created.current is created.default


class Inside:
    """What is done in a capture."""

    act: Callable[[], object] | None = None


def _identity(size: int, inside: Inside, copies: Copies) -> Callable[[Any], tuple[Any, ...]]:
    """A step that copies an array to the device and back, captured as one graph."""
    block = host_block(DEVICE)
    assert block is not None
    host = block(4 * size).view("f4")
    there = [torch.empty(size, device=DEVICE) for _ in range(2)]
    graph = CapturedLines(copies)

    def step(x: Any) -> tuple[Any, ...]:
        for (array,) in graph(x):
            copies.upload(there[0], array)
            if inside.act is not None and copies._is_capturing:
                inside.act()
            there[1].copy_(there[0])
            copies.download(host, there[1])
        copies.downloaded()
        return (host,)

    return step


class Lane:
    """A captured step with memory of its own, and what is done in its capture."""

    def __init__(self, size: int = 4) -> None:
        self.size, self.inside = size, Inside()
        self.step = _identity(size, self.inside, Copies(DEVICE))

    def run(self, *values: float) -> None:
        for value in values:
            (result,) = self.step(np.full(self.size, value, "f4"))
            assert (result == value).all()


class Other:
    """A thread that acts while a lane is captured; `is_late` if it had to wait for the end."""

    def __init__(self, device: FakeCuda, act: Callable[[], object], patience: float = 5) -> None:
        self.error: Exception | None = None
        self.is_late = False
        self._device, self._act, self._patience = device, act, patience
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        with self._device:
            try:
                self._act()
            except (AssertionError, RuntimeError, TooLarge) as error:
                self.error = error

    def start(self) -> None:
        self._thread.start()
        self._thread.join(self._patience)
        self.is_late = self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()


def acting(device: FakeCuda, act: Callable[[], object], patience: float = 5) -> Other:
    """Capture a lane, let another thread act meanwhile, and run the lane once more."""
    lane, other = Lane(), Other(device, act, patience)
    lane.run(1)
    lane.inside.act = other.start
    lane.run(2)
    other.join()
    lane.run(3)
    return other


WAITS = 0.02
"""Seconds after which a thread is taken to wait for the end of a capture."""


def test_a_first_run_does_not_wait_for_a_capture(device: FakeCuda) -> None:
    """It allocates memory of both kinds, uploads, waits for events and frees all again."""
    other = acting(device, lambda: Lane(size=1000).run(1))
    assert (other.error, other.is_late) == (None, False)
    assert not device.aborts


def test_a_replay_does_not_wait_for_a_capture(device: FakeCuda) -> None:
    lane = Lane()
    lane.run(1, 2)
    other = acting(device, lambda: lane.run(3, 4))
    assert (other.error, other.is_late, device.replays) == (None, False, 5)


def test_a_capture_waits_for_another(device: FakeCuda) -> None:
    lane = Lane()
    lane.run(1)
    other = acting(device, lambda: lane.run(2), WAITS)
    assert (other.error, other.is_late, device.replays) == (None, True, 3)
    assert not device.aborts


@pytest.mark.parametrize("is_own", [True, False], ids=["by itself", "by another thread"])
def test_a_lane_dropped_during_a_capture_is_freed_after_it(device: FakeCuda, is_own: bool) -> None:
    lanes = [Lane()]
    lanes[0].run(1, 2)
    if is_own:
        lane = Lane()
        lane.run(1)
        lane.inside.act = lanes.clear
        lane.run(2, 3)
    else:
        other = acting(device, lanes.clear)
        assert (other.error, other.is_late) == (None, False)
    assert not device.aborts
    assert not CAPTURES._released


def test_a_dropped_lane_is_freed_at_once_without_a_capture(device: FakeCuda) -> None:
    lane = Lane()
    lane.run(1, 2)
    before = len(device.free)
    del lane
    assert len(device.free) > before and not CAPTURES._released


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_in_a_capture_leaves_the_step_usable(
    device: FakeCuda, kind: type[BaseException]
) -> None:
    lane, other = Lane(), Lane()
    lane.run(1)

    def fail() -> None:
        raise kind("inside")

    lane.inside.act = fail
    with pytest.raises(kind, match="inside"):
        lane.run(2)
    other.run(1, 2, 3)
    lane.inside.act = None
    lane.run(4, 5)
    assert device.replays == 4 and not device.aborts


def test_a_call_that_a_capture_forbids_is_the_error(device: FakeCuda) -> None:
    """And not that of the end of the capture, which only says that there was an earlier one."""
    lane = Lane()
    lane.run(1)
    lane.inside.act = lambda: device.current.synchronize()
    with pytest.raises(RuntimeError, match=CAPTURING):
        lane.run(2)
    lane.inside.act = None
    lane.run(3, 4)
    assert device.replays == 2 and not device.aborts


def test_too_little_memory_in_a_capture_is_reported(device: FakeCuda) -> None:
    lane, arena = Lane(), DeviceArena(DEVICE)
    lane.run(1)
    lane.inside.act = lambda: arena.fresh("float32", [1000])
    device.capacity = device._device_bytes + 1024
    with pytest.raises(TooLarge, match=r"float32 of shape \(1000,\), does not fit"):
        lane.run(2)
    device.capacity = 1e9
    lane.run(3, 4)
    assert device.replays == 2 and not device.aborts


def test_too_little_memory_for_the_inputs_is_reported(device: FakeCuda) -> None:
    lane = Lane()
    lane.run(1)
    device.capacity = 0
    device.free.clear()
    with pytest.raises(TooLarge, match=r"an input of shape \(4,\), does not fit"):
        lane.run(2)


def test_a_graph_that_does_not_fit_is_reported(device: FakeCuda, monkeypatch: Any) -> None:
    def fails(graph: Any, end: Any = device.graph.capture_end) -> None:
        end(graph)
        raise RuntimeError("CUDA error: out of memory")

    lane = Lane()
    lane.run(1)
    with monkeypatch.context() as patch:
        patch.setattr(device.graph, "capture_end", fails)
        with pytest.raises(TooLarge, match="the CUDA graph of a step"):
            lane.run(2)
    lane.run(3, 4)
    assert device.replays == 2 and not device.aborts


def test_a_graph_whose_capture_does_not_begin_is_kept(device: FakeCuda, monkeypatch: Any) -> None:
    def fails(graph: Any, **mode: Any) -> None:
        graph.generators["default"] = False
        raise RuntimeError("CUDA error: out of memory")

    lane = Lane()
    lane.run(1)
    with monkeypatch.context() as patch:
        patch.setattr(CAPTURES, "broken", [])
        patch.setattr(device.graph, "capture_begin", fails)
        with pytest.raises(TooLarge):
            lane.run(2)
        assert not device.aborts
    assert device.aborts  # the fake shows what happens when it is destroyed


def test_memory_cached_during_a_capture_is_used_after_it(device: FakeCuda) -> None:
    """Torch frees its cache for an allocation only while nothing is captured."""

    def allocate() -> None:
        device.capacity = device._device_bytes + (1 << 15) + 1024
        DeviceArena(DEVICE).reserve(1 << 16)

    DeviceArena(DEVICE).reserve(1 << 15)
    other = acting(device, allocate, WAITS)
    assert (other.error, other.is_late) == (None, True)


def test_copies_never_use_the_stream_of_captures(device: FakeCuda, monkeypatch: Any) -> None:
    """Torch returns 32 streams in turn."""
    streams = [Stream(device) for _ in range(32)]
    turn = iter([*streams, *streams])
    monkeypatch.setattr("torch.cuda.Stream", lambda device=None: next(turn))
    capture_stream.cache_clear()
    assert capture_stream(DEVICE) not in [new_stream(DEVICE) for _ in range(60)]


# ---- steps in pieces ----


def split_step(copies: Copies) -> Callable[[Any], Any]:
    """Y = 2 (3 x + 1): the device multiplies, in two graphs, and the host adds."""
    block = host_block(DEVICE)
    assert block is not None
    first, last = block(16).view("f4"), block(16).view("f4")
    there, product = (torch.empty(4, device=DEVICE) for _ in range(2))
    graphs = CapturedLines(copies), CapturedLines(copies)

    def times(factor: int) -> None:
        product.copy_(there)
        with torch._C.DisableTorchFunction():
            out = product.numpy()
        torch.cuda.current_stream().enqueue("run", lambda: np.multiply(out, factor, out))

    def step(x: Any) -> Any:
        for (array,) in graphs[0](x):
            copies.upload(there, array)
            times(3)
            copies.download(first, product)
        copies.downloaded()
        first[:] += 1
        copies.upload(there, first)
        first[:] = -7  # the host may write into what it uploaded
        for _ in graphs[1]():
            times(2)
            copies.download(last, product)
        copies.downloaded()
        return last.copy()

    return step


def split_results(order: str | int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    created = FakeCuda(order)
    created.patch(monkeypatch)
    with created:
        step = split_step(Copies(DEVICE))
        results = [step(np.full(4, number, "f4"))[0] for number in range(6)]
        assert created.replays == 10
    return results


@pytest.mark.parametrize("order", ORDERS)
def test_a_step_in_pieces_computes_the_same(
    order: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert split_results(order, monkeypatch) == [2, 8, 14, 20, 26, 32]


def test_the_host_waits_for_downloads_of_a_replayed_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Copies, "note_download", lambda self: None)
    assert split_results("late", monkeypatch) != [2, 8, 14, 20, 26, 32]


# ---- calls of a library ----


@pytest.mark.parametrize("order", ["late", 1])
def test_calls_of_a_library_are_captured(order: str | int, monkeypatch: pytest.MonkeyPatch) -> None:
    created = FakeCuda(order)
    created.patch(monkeypatch)
    with created:
        copies, block = Copies(DEVICE), host_block(DEVICE)
        assert block is not None
        host, (there, out) = block(16).view("f4"), (torch.empty(2, 2, device=DEVICE) for _ in "ab")
        graph = CapturedLines(copies, library=True)
        for number in range(1, 5):
            for (array,) in graph(np.full((2, 2), number, "f4")):
                copies.upload(there, array)
                torch.matmul(there, there.T, out=out)
                copies.download(host, out.view(-1))
            copies.downloaded()
            assert (host == 2 * number**2).all()
        assert created.replays == 3
        with pytest.raises(RuntimeError, match=CAPTURING):  # whose memory was not allocated before
            created.prepared.clear()
            with StepGraph(DEVICE).capturing():
                torch.matmul(there, there.T, out=out)


def library_results(order: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What two graphs, replayed on two streams, read from the workspace that they write."""
    created = FakeCuda(order)
    created.patch(monkeypatch)
    workspace, results = np.zeros(1), [-1.0, -1.0]

    def use(number: int) -> None:
        stream = torch.cuda.current_stream()
        stream.enqueue("run", lambda: workspace.fill(number))
        stream.enqueue("run", lambda: results.__setitem__(number, float(workspace[0])))

    with created:
        graphs = [StepGraph(DEVICE, library=True) for _ in results]
        for number, graph in enumerate(graphs):
            with graph.capturing():
                use(number)
        for graph in graphs:
            with created.entered(Stream(created)):
                graph.replay()
        created.synchronize()
    return results


def test_graphs_that_call_a_library_run_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(library_results(order, monkeypatch) == [0, 1] for order in range(20))
    monkeypatch.setattr(StreamOrder, "follow", lambda *_: None)
    assert not all(library_results(order, monkeypatch) == [0, 1] for order in range(20))


# ---- what the fake shows ----


@contextmanager
def as_torch(graph: StepGraph) -> Iterator[None]:
    """A capture of `torch.cuda.graph`, without the lock."""
    with torch.cuda.graph(graph._owned[0], capture_error_mode="thread_local"):
        yield


def test_the_fake_shows_captures_at_once(device: FakeCuda, monkeypatch: Any) -> None:
    """The second one fails, breaks the first, and ends the process when its graph is destroyed."""
    monkeypatch.setattr(StepGraph, "capturing", as_torch)
    lane = Lane()
    lane.run(1)
    with pytest.raises(RuntimeError, match="previous error during capture"):
        acting(device, lambda: lane.run(2))
    device.current = device.default


def test_the_fake_shows_a_lock_that_is_missing(device: FakeCuda, monkeypatch: Any) -> None:
    @contextmanager
    def capturing(graph: StepGraph) -> Iterator[None]:
        with device.entered(Stream(device)):
            graph._owned[0].capture_begin("thread_local")
            yield
            graph._owned[0].capture_end()

    monkeypatch.setattr(StepGraph, "capturing", capturing)
    lane = Lane()
    lane.run(1)
    other = acting(device, lambda: lane.run(2))
    assert "Cannot register the state" in str(other.error)
    other.error = None  # whose traceback has the graph
    assert device.aborts == ["The graph should be registered to the state"]


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_the_fake_shows_the_mode_of_a_capture(
    device: FakeCuda, monkeypatch: Any, mode: str
) -> None:
    begin = device.graph.capture_begin
    monkeypatch.setattr(
        device.graph, "capture_begin", lambda graph, capture_error_mode: begin(graph, mode)
    )
    stream = Stream(device)
    for act in (stream.synchronize, lambda: torch.empty(999, device=DEVICE)):
        if mode == "thread_local":
            assert acting(device, act).error is None
            continue
        with pytest.raises(RuntimeError, match="previous error during capture"):
            acting(device, act)


def test_the_fake_shows_memory_freed_during_a_capture(device: FakeCuda, monkeypatch: Any) -> None:
    monkeypatch.setattr(CAPTURES, "release", list.clear)
    lanes = [Lane()]
    lanes[0].run(1, 2)
    with pytest.raises(RuntimeError, match="previous error during capture"):
        acting(device, lanes.clear)
    assert sorted(device.aborts) == ["The graph should be registered to the state", CAPTURING]
