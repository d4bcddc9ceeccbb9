"""Worker: a process that runs modules as one rank, for the process that started it.

It loads modules that the caller compiled, keeps their state, and runs their steps. It exits with
the caller, by a signal of the kernel or at the end of the socket, whichever comes first.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NoReturn, cast

import numpy as np

from compiler.codegen.module import Module
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.collective.engine import torch_module
from runtime.collective.groups.segment import Segment, SegmentLayout
from runtime.collective.local_store import StoreClient, local_connection
from runtime.collective.rings import Rings
from runtime.device import CPUPlace, CUDAPlace, Place
from runtime.error_reports import error_report
from runtime.loader import Executable, load
from runtime.parallel.channel import Channel, Message, value_text
from runtime.parallel.region import SharedRegion, Value
from runtime.parent_process import end_with
from runtime.tensors.scope import Scope


@dataclass(frozen=True)
class WorkerSettings:
    """The start settings of a worker.

    `device` is the index of a GPU, -1 for the host; `spin` is in seconds, as for a Channel. The
    process itself sets its parent and its descriptors: of its socket, of its region, of the region
    with state for all workers, of memory that all ranks share, and of the store of the caller (-1
    for none).
    """

    rank: int
    size: int
    rings: int
    endpoint: str
    name: str
    deadline: float
    limit: float
    spin: float
    device: int
    socket: int = -1
    region: int = -1
    state: int = -1
    shared: int = -1
    store: int = -1
    parent: int = 0

    def text(self) -> str:
        """The settings as one command-line argument."""
        return json.dumps(asdict(self))


class Worker:
    """One rank: its rings, its modules and the state they share by scope."""

    def __init__(self, settings: WorkerSettings, channel: Channel) -> None:
        self._settings = settings
        self._channel = channel
        self._state = SharedRegion(settings.state)
        self._rings = Rings(settings.deadline)
        self._scopes: dict[str, Scope] = {}
        self._modules: dict[str, Executable] = {}
        self._handlers: Mapping[str, Callable[[Message], list[Any]]] = {
            "load": self._load,
            "run": self._run,
            "set": self._set,
            "get": self._get,
            "drop": self._drop,
            "share": self._share,
            "hierarchy": self._hierarchy,
        }

    def serve(self) -> None:
        """Join the ring, then process messages until the caller ends or closes."""
        try:
            self._join()
            self._channel.send({"do": "ready"})
            while (message := self._channel.receive()) is not None and message["do"] != "close":
                values = self._handlers[message["do"]](message)
                self._channel.send({"do": "done"}, values)
        except BaseException as error:
            self._report(error)
            raise
        self._rings.close()

    def _join(self) -> None:
        settings = self._settings
        store = None
        if settings.store >= 0:
            store = local_connection(StoreClient(socket.socket(fileno=settings.store)))
        else:
            torch_module().set_num_threads(1)
        self._rings.create_id(
            settings.name, settings.rank, [settings.endpoint], size=settings.size,
            store=store, limit=settings.limit,
        )  # fmt: skip
        own = settings.name, settings.size, settings.rank
        layout = SegmentLayout(settings.size, settings.rings)
        shared = Segment(settings.shared, layout) if settings.shared >= 0 else None
        for ring in range(settings.rings):
            self._rings.init_ring(ring, *own, shared=shared, spin=settings.spin)
        if shared is not None:
            shared.close()

    def _report(self, error: BaseException) -> None:
        """Send the error of a step; the caller then ends this process."""
        self._rings.fail(error)
        self._channel.send({"do": "error", **error_report(error, self._settings.rank)})

    def _place(self) -> Place:
        return CUDAPlace(self._settings.device) if self._settings.device >= 0 else CPUPlace()

    def _load(self, message: Message) -> list[Value]:
        (source,) = self._channel.values(message, copies=True)
        module = Module.parse(value_text(source))
        scope = self._scopes.setdefault(message["scope"], Scope())
        names = {"collective": self._rings}
        self._modules[message["key"]] = load(module, self._place(), scope, names=names)
        return []

    def _run(self, message: Message) -> list[Value]:
        executable = self._modules[message["key"]]
        self._rings.step = message["step"]
        values = self._channel.values(message, copies=False)
        pairs = zip(executable.module.feeds, values, strict=True)
        return cast("list[Value]", executable({t.name: cast(Array, v) for t, v in pairs}))

    def _set(self, message: Message) -> list[Value]:
        scope = self._scopes.setdefault(message["scope"], Scope())
        values = self._state.read(message["places"], copies=False)
        for name, value in zip(message["names"], values, strict=True):
            scope.var(name).get_tensor().set(value, CPUPlace())
        return []

    def _get(self, message: Message) -> list[Value]:
        arrays = self._scopes.get(message["scope"], Scope()).arrays().tracked()
        missing = [name for name in message["names"] if name not in arrays]
        if missing:
            raise KeyError(f"scope {message['scope']!r} has no {', '.join(missing)}")
        return [arrays[name] for name in message["names"]]

    def _share(self, message: Message) -> list[Value]:
        """Take part in a broadcast of a variable that one rank holds."""
        name, root = message["name"], message["root"]
        array = np.empty(message["shape"], message["dtype"])
        if root == self._settings.rank:
            array = self._scopes[message["scope"]].arrays().tracked()[name].copy()
        self._rings.broadcast(0, name, root, array)
        return []

    def _drop(self, message: Message) -> list[Value]:
        for key in message["keys"]:
            self._modules.pop(key, None)
        for scope in message["scopes"]:
            self._scopes.pop(scope, None)
        return []

    def _hierarchy(self, message: Message) -> list[Value]:
        for ring in range(self._settings.rings):
            self._rings.set_hierarchy(ring, message["inner"])
        return []


def run_worker(settings: WorkerSettings) -> NoReturn:
    """Run a worker in this process, which exits without running destructors."""
    end_with(settings.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=settings.socket)
    code = 1
    try:
        Worker(settings, Channel(connection, SharedRegion(settings.region), settings.spin)).serve()
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)
