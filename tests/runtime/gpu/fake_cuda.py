"""A fake of `torch.cuda` whose work is done as late, or in as bad an order, as CUDA allows.

Kernels and copies only join the queue of their stream. They run when the host waits for them, or
when the order of the test says so; never before what they must wait for. So a wait that is missing
shows as a wrong number:

- "late": nothing runs until the host waits for it, and then no more than that needs;
- "eager": everything runs at once, unless it must wait for a stream that lags;
- "side first", "side last": the streams that a program makes run at once and the current one late,
  or the other way round;
- a number: after each call, a random number of runnable items of random streams.

Device memory is memory of the host that only queued work may touch. As in torch's allocator, memory
that is freed is given to the next allocation on the same stream, although its work may be queued.

Several threads may use it, each of which enters it and has a current stream of its own. Captures
break as those of torch do:

- in the mode "global", calls of other threads that allocate, wait, or begin a capture fail; in
  every mode those of the capturing thread and `torch.cuda.synchronize` of any. Such a call also
  ends the capture it disturbs, which reports that when it ends;
- a graph that is registered with the random generator while another one is captured fails;
- what C++ would raise in a destructor, where it ends the process, is added to `aborts`: a graph
  that failed to register, or one that is destroyed while another is captured; pinned memory freed
  whose last copy was captured on a stream that captures again;
- memory cached by the allocator is not freed for others while there is a capture;
- a thread's first product on a stream allocates memory for the library, before any capture.
"""

from __future__ import annotations

import ctypes
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from runtime.gpu.cuda import capture_stream
from runtime.gpu.graphs import library_workspace
from runtime.gpu.result_blocks import ResultBlocks
from tools.ptx.library import Library

CAPTURING = "operation not permitted when stream is capturing"

ORDERS = ("late", "eager", "side first", "side last", 1, 2, 3)


@dataclass(eq=False)
class Ticket:
    """A place in the queue of a stream, which has been reached once `is_done`."""

    stream: Stream
    is_done: bool = False


def guarded(method: Any) -> Any:
    """Let one thread at a time run the methods of a fake."""

    @wraps(method)
    def alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.fake.guard:
            return method(self, *args, **kwargs)

    return alone


@dataclass(eq=False)
class Capture:
    """A capture of a thread; `is_valid` until a call is made that it does not permit."""

    work: list[Callable[[], None]]
    mode: str
    thread: int = field(default_factory=threading.get_ident)
    is_valid: bool = True

    @property
    def is_mine(self) -> bool:
        return self.thread == threading.get_ident()


class Stream:
    """A queue of functions to run, tickets to mark as reached, and tickets to wait for."""

    def __init__(self, fake: FakeCuda) -> None:
        self.fake = fake
        self.queue: deque[tuple[str, Any]] = deque()
        self.capture: Capture | None = None
        fake.streams.append(self)
        self.cuda_stream = len(fake.streams)

    @guarded
    def enqueue(self, kind: str, item: Any) -> None:
        if self.capture is not None:
            if kind != "run":
                self.capture.is_valid = False
                raise RuntimeError(CAPTURING)
            self.capture.work.append(item)
            return
        self.queue.append((kind, item))
        self.fake.run_some()

    def ticket(self) -> Ticket:
        created = Ticket(self)
        self.enqueue("reach", created)
        return created

    def wait_event(self, event: Event) -> None:
        if event.ticket is not None:
            self.enqueue("wait", event.ticket)

    def wait_stream(self, other: Stream) -> None:
        self.enqueue("wait", other.ticket())

    def synchronize(self) -> None:
        self.fake.force(self.ticket())

    @property
    def is_runnable(self) -> bool:
        kind, item = self.queue[0] if self.queue else ("", None)
        return bool(kind) and (kind != "wait" or item.is_done)

    def run_next(self) -> None:
        """Run the first item; forces what it waits for."""
        kind, item = self.queue[0]
        if kind == "wait":
            self.fake.force(item)
        self.queue.popleft()
        if kind == "run":
            item()
        elif kind == "reach":
            item.is_done = True


class Event:
    """Like `torch.cuda.Event`: a second `record` takes the place of the first."""

    def __init__(self, fake: FakeCuda) -> None:
        self.fake = fake
        self.ticket: Ticket | None = None

    def record(self, stream: Stream) -> None:
        self.ticket = stream.ticket()

    def synchronize(self) -> None:
        if self.ticket is not None:
            self.fake.force(self.ticket)


class Graph:
    """Like `torch.cuda.CUDAGraph`: the work that was captured, with its addresses."""

    def __init__(self, fake: FakeCuda) -> None:
        self.fake = fake
        self.work: list[Callable[[], None]] = []
        self.generators: dict[str, bool] = {}
        weakref.finalize(self, fake.destroyed, self.generators)

    @guarded
    def capture_begin(self, capture_error_mode: str = "global") -> None:
        stream = self.fake.current
        self.generators["default"] = False
        if self.fake.captures:
            raise RuntimeError("Cannot register the state during capturing stage.")
        self.generators["default"] = True
        if stream is self.fake.default:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        self.fake.unsafe()
        stream.capture = Capture(self.work, capture_error_mode)

    @guarded
    def capture_end(self) -> None:
        ended, self.fake.current.capture = self.fake.current.capture, None
        if ended is None or not ended.is_mine:
            raise RuntimeError("Capture must end on the same stream it began on.")
        if not ended.is_valid:
            raise RuntimeError("operation failed due to a previous error during capture")

    @guarded
    def replay(self) -> None:
        self.fake.replays += 1
        for item in self.work:
            self.fake.current.enqueue("run", item)


class Capturing:
    """Like `torch.cuda.graph`, which all threads capture on one stream, after a synchronisation."""

    def __init__(self, graph: Graph, capture_error_mode: str = "global") -> None:
        self.graph, self.mode = graph, capture_error_mode

    def __enter__(self) -> None:
        fake = self.graph.fake
        fake.synchronize()
        self.on_stream = fake.entered(fake.default_capture_stream)
        self.on_stream.__enter__()
        self.graph.capture_begin(self.mode)

    def __exit__(self, *error: Any) -> None:
        self.graph.capture_end()
        self.on_stream.__exit__(*error)


class Block(np.ndarray):
    """An allocation; its memory is free once it is collected."""


@dataclass(eq=False)
class Memory:
    """Bytes of the device or pinned ones, the stream they belong to, and others that use them."""

    bytes: np.ndarray
    stream: Stream | None = None
    users: list[Stream] = field(default_factory=list)
    awaited: list[Ticket] = field(default_factory=list)

    @property
    def start(self) -> int:
        return self.bytes.ctypes.data

    def holds(self, address: int) -> bool:
        return self.start <= address < self.start + self.bytes.nbytes


class FakeCuda(TorchFunctionMode):
    """The fake: entered, torch's functions take device tensors; `patch` replaces `torch.cuda`."""

    def __init__(self, order: str | int = "late") -> None:
        super().__init__()
        self.fake, self.guard, self.of_thread = self, threading.RLock(), threading.local()
        self.order, self.random = order, random.Random(order)
        self.streams: list[Stream] = []
        self.default, self.default_capture_stream = Stream(self), Stream(self)
        self.replays = self.forced = 0
        self.device, self.pinned, self.free, self.unfinished = [], [], [], []
        self.capacity = float("inf")
        self.aborts: list[str] = []
        self.prepared: set[tuple[int, Stream]] = set()
        self.graph = type("Graph", (Graph,), {})

    @property
    def current(self) -> Stream:
        return getattr(self.of_thread, "stream", self.default)

    @current.setter
    def current(self, stream: Stream) -> None:
        self.of_thread.stream = stream

    # ---- captures ----

    @property
    def captures(self) -> list[Capture]:
        return [stream.capture for stream in list(self.streams) if stream.capture is not None]

    def unsafe(self, of_device: bool = False) -> None:
        """A call that captures may forbid; one `of_device` breaks those of every thread."""
        broken = [
            capture
            for capture in self.captures
            if of_device or capture.is_mine or capture.mode == "global"
        ]
        for each in broken:
            each.is_valid = False
        if broken:
            raise RuntimeError(CAPTURING)

    @guarded
    def synchronize(self, device: Any = None) -> None:
        self.unsafe(of_device=True)
        for stream in list(self.streams):
            while stream.queue:
                stream.run_next()

    @guarded
    def destroyed(self, generators: dict[str, bool]) -> None:
        """The destructor of a graph."""
        if self.captures or not all(generators.values()):
            self.aborts.append("The graph should be registered to the state")

    # ---- the order of work ----

    @guarded
    def run_some(self) -> None:
        """Run what the order of the test runs at once."""
        if isinstance(self.order, int):
            for _ in range(self.random.randrange(4)):
                ready = [stream for stream in self.streams if stream.is_runnable]
                if ready:
                    self.random.choice(ready).run_next()
            return
        while ready := [
            stream for stream in self.streams if stream.is_runnable and self._is_first(stream)
        ]:
            ready[0].run_next()

    def _is_first(self, stream: Stream) -> bool:
        is_side = stream is not self.default
        return self.order == "eager" or self.order == ("side first" if is_side else "side last")

    @guarded
    def force(self, ticket: Ticket) -> None:
        """Let the host wait for a ticket."""
        self.unsafe()
        self.forced += 1
        while not ticket.is_done:
            ticket.stream.run_next()

    # ---- torch.cuda ----

    def patch(self, monkeypatch: Any) -> None:
        """Replace the functions of `torch.cuda` that the project calls."""
        properties = SimpleNamespace(name="fake", major=8, minor=0, multi_processor_count=4)
        for name, value in {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "get_device_properties": lambda device: properties,
            "current_stream": lambda device=None: self.current,
            "Stream": lambda device=None: Stream(self),
            "Event": lambda: Event(self),
            "stream": self.entered,
            "device": lambda device: self.entered(self.current),
            "CUDAGraph": lambda: self.graph(self),
            "graph": Capturing,
            "synchronize": self.synchronize,
            "current_blas_handle": self.prepare_library,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        capture_stream.cache_clear()
        library_workspace.cache_clear()
        monkeypatch.setattr("runtime.gpu.copies.result_blocks", cache(ResultBlocks))
        monkeypatch.setattr(
            torch.Tensor, "record_stream", lambda each, stream: self.record_stream(each, stream)
        )

    @guarded
    def prepare_library(self) -> None:
        """Allocate what this thread's products on the current stream need."""
        place = threading.get_ident(), self.current
        if place not in self.prepared:
            self.unsafe()
            self.prepared.add(place)

    @contextmanager
    def entered(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    # ---- memory ----

    @guarded
    def allocate(self, nbytes: int, pinned: bool = False) -> Block:
        """Memory of the device, freed before on the same stream if there is any, or pinned."""
        size, held = max(256, -(-nbytes // 256) * 256), None
        if not pinned:
            self._finish_released()
            held = next((each for each in self.free if self._is_free(each, size)), None)
        if held is None:
            held = self._new_memory(size, pinned)
        else:
            self.free.remove(held)
        block = held.bytes.view(Block)
        weakref.finalize(block, self._unpin if pinned else self._release, held)
        return block

    def _new_memory(self, size: int, pinned: bool) -> Memory:
        if pinned or self.current.capture is None:  # torch permits itself the latter
            self.unsafe()
        if not pinned and self._device_bytes + size > self.capacity:
            if not self.captures:
                self.device = [each for each in self.device if each not in self.free]
                self.free.clear()
            if self._device_bytes + size > self.capacity:
                raise torch.OutOfMemoryError(f"Tried to allocate {size} bytes")
        held = Memory(np.full(size, 0xFF, np.uint8), None if pinned else self.current)
        (self.pinned if pinned else self.device).append(held)
        return held

    @property
    def _device_bytes(self) -> int:
        return sum(each.bytes.nbytes for each in self.device)

    def _is_free(self, held: Memory, size: int) -> bool:
        awaited = all(ticket.is_done for ticket in held.awaited)
        return awaited and held.stream is self.current and held.bytes.nbytes == size

    @guarded
    def _release(self, held: Memory) -> None:
        self.unfinished.append(held)
        self._finish_released()

    def _finish_released(self) -> None:
        """Record events after which memory is free: not while anything is captured."""
        while self.unfinished and not self.captures:
            held = self.unfinished.pop()
            held.awaited = [stream.ticket() for stream in held.users if stream is not held.stream]
            held.users = []
            self.free.append(held)

    @guarded
    def _unpin(self, held: Memory) -> None:
        """Record events after the copies of pinned memory, as torch does in every case."""
        try:
            held.awaited = [stream.ticket() for stream in held.users]
        except RuntimeError as error:
            self.aborts.append(str(error))

    def _find(self, memories: list[Memory], tensor: Any) -> Memory | None:
        address = torch.Tensor.data_ptr(tensor)
        return next((memory for memory in memories if memory.holds(address)), None)

    def is_there(self, tensor: Any) -> bool:
        return isinstance(tensor, torch.Tensor) and self._find(self.device, tensor) is not None

    def is_pinned(self, tensor: Any) -> bool:
        return self._find(self.pinned, tensor) is not None

    def tensor(self, like: Any, pinned: bool = False) -> Any:
        """A new tensor of the shape and dtype of another one."""
        block = self.allocate(like.numel() * like.element_size(), pinned)
        flat = torch.frombuffer(block, dtype=like.dtype)
        return flat[: like.numel()].view(like.shape)

    # ---- torch ----

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        owner = getattr(func, "__self__", None)
        if name == "__get__" and owner in _PROPERTIES and self.is_there(args[0]):
            return _PROPERTIES[owner]
        handler = getattr(self, f"_{name}", None) if name in _FUNCTIONS else None
        return func(*args, **kwargs) if handler is None else handler(func, args, kwargs)

    def _made(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Functions that make a tensor, here or there."""
        is_there = str(kwargs.pop("device", "")).startswith("cuda")
        pinned = kwargs.pop("pin_memory", False)
        if func is torch.empty_like and not is_there and not pinned:
            is_there = self.is_there(args[0])
        created = func(*args, **kwargs)
        if not is_there and not pinned:
            return created
        there = self.tensor(created, pinned)
        if func not in (torch.empty, torch.empty_like):
            self._copied(there, created, False)
        return there

    _empty = _empty_like = _tensor = _made

    def _to(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not str(args[1]).startswith("cuda"):
            return func(*args, **kwargs)
        return self._copied(self.tensor(args[0]), args[0], False)

    def _copy_(self, func: Any, args: Any, kwargs: Any) -> Any:
        out, source, *rest = args
        return self._copied(out, source, bool(rest and rest[0]) or kwargs.get("non_blocking"))

    def _copied(self, out: Any, source: Any, non_blocking: bool | None) -> Any:
        sides = self.is_there(out), self.is_there(source)
        if not any(sides):
            return torch.Tensor.copy_(out, source)
        if not sides[1] and not self.is_pinned(source):
            source = torch.Tensor.clone(source)  # CUDA reads such memory before the call returns
        self.current.enqueue("run", lambda: _plainly(torch.Tensor.copy_, out, source))
        for memory in (self._find(self.pinned, each) for each in (out, source)):
            if memory is not None and self.current not in memory.users:
                memory.users.append(self.current)
        is_async = all(sides) or (non_blocking and (sides[0] or self.is_pinned(out)))
        if not is_async:
            self.current.synchronize()
        return out

    def _matmul(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.prepare_library()
        self.current.enqueue("run", lambda: _plainly(func, *args, **kwargs))

    def _fill_(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not self.is_there(args[0]):
            return func(*args, **kwargs)
        self.current.enqueue("run", lambda: _plainly(func, *args))
        return args[0]

    def _is_pinned(self, func: Any, args: Any, kwargs: Any) -> bool:
        return self.is_pinned(args[0])

    def record_stream(self, tensor: Any, stream: Stream) -> None:
        held = self._find(self.device, tensor)
        if held is not None:
            held.users.append(stream)


def _plainly(func: Any, *args: Any, **kwargs: Any) -> None:
    with torch._C.DisableTorchFunction():
        func(*args, **kwargs)


_FUNCTIONS = {
    "empty", "empty_like", "tensor", "to", "copy_", "fill_", "is_pinned", "matmul",
}  # fmt: skip
_PROPERTIES = {torch.Tensor.is_cuda: True, torch.Tensor.device: torch.device("cuda:0")}


class QueuedLibrary(Library):
    """The PTX machine as a GPU whose launches join a stream; arguments are read at the call."""

    def __init__(self, fake: FakeCuda) -> None:
        super().__init__(80)
        self.fake = fake

    def announce(self, ranges: Any) -> None:
        """Let the next launch of this thread use these ranges."""
        self.fake.of_thread.ranges = list(ranges)

    @guarded
    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        """Enqueue a launch."""
        *sizes, shared, stream, inputs, extra = rest
        kept = [ctypes.create_string_buffer(ctypes.string_at(each, 8), 8) for each in inputs]
        places = [ctypes.addressof(each) for each in kept]
        inputs, watch = self.fake.of_thread.ranges, self.watch
        reached = list(watch()) if watch else []
        launch = super().cuLaunchKernel

        def run() -> None:
            assert kept
            self._given, self.watch = inputs, lambda: reached
            assert launch(function, *sizes, shared, stream, places, extra) == 0
            self.watch = watch

        assert stream == self.fake.current.cuda_stream
        self.fake.current.enqueue("run", run)
        return 0
