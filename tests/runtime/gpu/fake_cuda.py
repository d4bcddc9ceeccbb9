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
"""

from __future__ import annotations

import ctypes
import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from runtime.ptx.library import Library

ORDERS = ("late", "eager", "side first", "side last", 1, 2, 3)


@dataclass(eq=False)
class Ticket:
    """A place in the queue of a stream, which has been reached once `is_done`."""

    stream: Stream
    is_done: bool = False


class Stream:
    """A queue of functions to run, tickets to mark as reached, and tickets to wait for."""

    def __init__(self, fake: FakeCuda) -> None:
        self.fake = fake
        self.queue: deque[tuple[str, Any]] = deque()
        fake.streams.append(self)
        self.cuda_stream = len(fake.streams)

    def enqueue(self, kind: str, item: Any) -> None:
        if self.fake.graph is not None:
            if kind != "run":
                raise RuntimeError("operation not permitted when stream is capturing")
            self.fake.graph.append(item)
            return
        self.queue.append((kind, item))
        self.fake.run_some()

    def ticket(self) -> Ticket:
        made = Ticket(self)
        self.enqueue("reach", made)
        return made

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

    def replay(self) -> None:
        self.fake.replays += 1
        for item in self.work:
            self.fake.current.enqueue("run", item)


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
        self.order, self.random = order, random.Random(order)
        self.streams: list[Stream] = []
        self.current = self.default = Stream(self)
        self.graph: list[Any] | None = None
        self.replays = self.forced = 0
        self.device, self.pinned, self.free = [], [], []

    # ---- the order of work ----

    def run_some(self) -> None:
        """Run what the order of the test runs at once."""
        if isinstance(self.order, int):
            for _ in range(self.random.randrange(4)):
                ready = [each for each in self.streams if each.is_runnable]
                if ready:
                    self.random.choice(ready).run_next()
            return
        while ready := [each for each in self.streams if each.is_runnable and self._is_first(each)]:
            ready[0].run_next()

    def _is_first(self, stream: Stream) -> bool:
        is_side = stream is not self.default
        return self.order == "eager" or self.order == ("side first" if is_side else "side last")

    def force(self, ticket: Ticket) -> None:
        """Let the host wait for a ticket."""
        if self.graph is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.forced += 1
        while not ticket.is_done:
            ticket.stream.run_next()

    # ---- torch.cuda ----

    def patch(self, monkeypatch: Any) -> None:
        """Replace the functions of `torch.cuda` that the project calls."""
        properties = SimpleNamespace(major=8, minor=0)
        for name, value in {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "get_device_properties": lambda device: properties,
            "current_stream": lambda device=None: self.current,
            "Stream": lambda device=None: Stream(self),
            "Event": lambda: Event(self),
            "stream": self.entered,
            "device": lambda device: self.entered(self.current),
            "CUDAGraph": lambda: Graph(self),
            "graph": self.capturing,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(
            torch.Tensor, "record_stream", lambda each, stream: self.record_stream(each, stream)
        )

    @contextmanager
    def entered(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def capturing(self, graph: Graph, capture_error_mode: str = "global") -> Iterator[None]:
        with self.entered(Stream(self)):
            self.graph = graph.work
            try:
                yield
            finally:
                self.graph = None

    # ---- memory ----

    def allocate(self, nbytes: int, pinned: bool = False) -> Block:
        """Memory of the device, freed before on the same stream if there is any, or pinned."""
        size, held = max(256, -(-nbytes // 256) * 256), None
        if not pinned:
            held = next((each for each in self.free if self._is_free(each, size)), None)
        if held is None:
            held = Memory(np.full(size, 0xFF, np.uint8), None if pinned else self.current)
            (self.pinned if pinned else self.device).append(held)
        else:
            self.free.remove(held)
        block = held.bytes.view(Block)
        if not pinned:
            weakref.finalize(block, self._release, held)
        return block

    def _is_free(self, held: Memory, size: int) -> bool:
        awaited = all(ticket.is_done for ticket in held.awaited)
        return awaited and held.stream is self.current and held.bytes.nbytes == size

    def _release(self, held: Memory) -> None:
        held.awaited = [stream.ticket() for stream in held.users if stream is not held.stream]
        held.users = []
        self.free.append(held)

    def _find(self, memories: list[Memory], tensor: Any) -> Memory | None:
        address = torch.Tensor.data_ptr(tensor)
        return next((each for each in memories if each.holds(address)), None)

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
        made = func(*args, **kwargs)
        if not is_there and not pinned:
            return made
        there = self.tensor(made, pinned)
        if func not in (torch.empty, torch.empty_like):
            self._copied(there, made, False)
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
        is_async = all(sides) or (non_blocking and (sides[0] or self.is_pinned(out)))
        if not is_async:
            self.current.synchronize()
        return out

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


def _plainly(func: Any, *args: Any) -> None:
    with torch._C.DisableTorchFunction():
        func(*args)


_FUNCTIONS = {
    "empty", "empty_like", "tensor", "to", "copy_", "fill_", "is_pinned",
}  # fmt: skip
_PROPERTIES = {torch.Tensor.is_cuda: True, torch.Tensor.device: torch.device("cuda:0")}


class QueuedLibrary(Library):
    """The PTX machine as a GPU whose launches join a stream; arguments are read at the call."""

    def __init__(self, fake: FakeCuda) -> None:
        super().__init__(80)
        self.fake = fake

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        """Enqueue a launch."""
        *sizes, shared, stream, given, extra = rest
        kept = [ctypes.create_string_buffer(ctypes.string_at(each, 8), 8) for each in given]
        places = [ctypes.addressof(each) for each in kept]
        given, watch = self._given, self.watch
        reached = list(watch()) if watch else []
        launch = super().cuLaunchKernel

        def run() -> None:
            assert kept
            self._given, self.watch = given, lambda: reached
            assert launch(function, *sizes, shared, stream, places, extra) == 0
            self.watch = watch

        assert stream == self.fake.current.cuda_stream
        self.fake.current.enqueue("run", run)
        return 0
