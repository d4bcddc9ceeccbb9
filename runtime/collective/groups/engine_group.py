"""EngineGroup: a torch.distributed process group, created directly, not the global default group.

Gloo moves host memory, NCCL GPU memory; tensors on a GPU that two ranks share are staged through
host memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from time import sleep
from typing import Any

from compiler.support.dataclass import dataclass
from compiler.support.settings.systems import GLOO_SOCKET_IFNAME
from runtime.collective.engine import distributed, seconds
from runtime.collective.groups.elements import OPERATIONS, reducible, tensor_of
from runtime.collective.slices import SLICE
from runtime.gpu.cuda import bytes_of

ENGINE_GRACE = 20.0
"""Seconds added to the engine's timeout, so that this process times out first and names the
rank.
"""

POLL = 0.0002
"""Polling interval for GPU work, in seconds."""


def gloo_engine(store: Any, prefix: str, rank: int, size: int, limit: float, address: str) -> Any:
    """Create a Gloo process group bound to this local address; blocks until all ranks have created
    theirs.

    `GLOO_SOCKET_IFNAME` selects another interface, as in torch.distributed.
    """
    dist = distributed()
    gloo = dist.ProcessGroupGloo
    options = gloo._Options()
    by_name = GLOO_SOCKET_IFNAME.is_set()
    device = gloo.create_default_device() if by_name else gloo.create_device(hostname=address)
    options._devices = [device]
    options._timeout = seconds(limit + ENGINE_GRACE)
    options._threads = 2
    return gloo(dist.PrefixStore(prefix, store), rank, size, options)


def nccl_engine(store: Any, prefix: str, rank: int, size: int, limit: float) -> Any:
    """Create an NCCL process group for the GPUs of these ranks, one each."""
    dist = distributed()
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = seconds(limit + ENGINE_GRACE)
    return dist.ProcessGroupNCCL(dist.PrefixStore(prefix, store), rank, size, options)


@dataclass
class EngineWork:
    """Work of an engine; `finish` copies its result back if the engine reduced a copy."""

    engine: Any
    finish: Callable[[], object] | None = None

    def done(self) -> bool:
        """Wait one slice and return whether the work is complete. Raises RuntimeError if it
        failed.
        """
        if not self._is_complete():
            return False
        if self.finish is not None:
            self.finish()
        return True

    def _is_complete(self) -> bool:
        try:
            self.engine.wait(seconds(SLICE))
        except RuntimeError:
            if not self.engine.is_completed():
                return False
            self.engine.wait()  # it may have completed after the slice: only its own error matters
        return True


class PolledWork(EngineWork):
    """Work on a GPU, polled for completion: `wait` of NCCL only orders streams."""

    def _is_complete(self) -> bool:
        for _ in range(int(SLICE / POLL)):
            if self.engine.is_completed():
                self.engine.wait()
                return True
            sleep(POLL)
        return False


class EngineGroup:
    """The collectives of one engine."""

    def __init__(self, engine: Any, rank: int, size: int, *, polls: bool = False) -> None:
        self._engine: Any = engine
        self._rank = rank
        self._size = size
        self._work = PolledWork if polls else EngineWork
        self._dist = distributed()

    def all_reduce(self, value: Any, operation: str) -> EngineWork:
        """Reduce in place on every rank."""
        tensor = tensor_of(value)
        reduced, operation, is_copy = reducible(tensor, operation)
        options = self._dist.AllreduceOptions()
        options.reduceOp = self._reduction(operation)
        finish = (lambda: tensor.copy_(reduced)) if is_copy else None
        return self._work(self._engine.allreduce([reduced], options), finish)

    def reduce(self, value: Any, operation: str, root: int) -> EngineWork:
        """Reduce in place on the root; other ranks pass a copy, which the engine may overwrite."""
        is_root, tensor = self._rank == root, tensor_of(value)
        reduced, operation, is_copy = reducible(tensor, operation)
        reduced = reduced if is_root or is_copy else reduced.clone()
        options = self._dist.ReduceOptions()
        options.reduceOp = self._reduction(operation)
        options.rootRank = root
        finish = (lambda: tensor.copy_(reduced)) if is_root and is_copy else None
        return self._work(self._engine.reduce([reduced], options), finish)

    def broadcast(self, value: Any, root: int) -> EngineWork:
        """Copy the root's values to every rank."""
        options = self._dist.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        tensor = bytes_of(tensor_of(value))
        return self._work(self._engine.broadcast([tensor], options))

    def all_gather(self, result: Any, value: Any) -> EngineWork:
        """Copy the values of all ranks, in rank order, into `result`."""
        tensors = tensor_of(result), tensor_of(value)
        return self._work(self._engine._allgather_base(*map(bytes_of, tensors)))

    def reduce_scatter(self, result: Any, value: Any, operation: str) -> EngineWork:
        """Reduce, and store this rank's part of axis 0 in `result`."""
        part = tensor_of(result).reshape(-1)
        whole = tensor_of(value).reshape(-1)
        reduced, operation, is_copy = reducible(whole, operation)
        target = reduced.new_empty(part.numel()) if is_copy else part.view(reduced.dtype)
        options = self._dist.ReduceScatterOptions()
        options.reduceOp = self._reduction(operation)
        finish = (lambda: part.copy_(target)) if is_copy else None
        return self._work(self._engine._reduce_scatter_base(target, reduced, options), finish)

    def scatter(self, result: Any, value: Any, root: int) -> EngineWork:
        """Copy this rank's part of axis 0 of the root's values into `result`."""
        options = self._dist.ScatterOptions()
        options.rootRank = root
        part = bytes_of(tensor_of(result))
        whole = bytes_of(tensor_of(value))
        parts = [list(whole.chunk(self._size))] if self._rank == root else []
        return self._work(self._engine.scatter([part], parts, options))

    def close(self) -> None:
        """Destroy the engine, which ends its threads."""
        self._engine = None

    def abandon(self) -> None:
        """Never destroy the engine: its destructor waits for work that cannot finish."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._engine))

    def _reduction(self, operation: str) -> Any:
        return getattr(self._dist.ReduceOp, OPERATIONS[operation])
