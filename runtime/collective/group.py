"""Group: one torch.distributed process group, created directly, not the global default group.

Its operations start asynchronous work that the caller waits for in slices. Gloo moves host memory,
NCCL GPU memory; tensors on a GPU that two ranks share are staged through host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Any

from compiler.support.settings.systems import GLOO_SOCKET_IFNAME
from runtime.collective.elements import OPERATIONS
from runtime.collective.engine import distributed, seconds
from runtime.collective.slices import SLICE

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
class Work:
    """Asynchronous work; `finish` copies its result back if it was staged or cast."""

    engine: Any
    finish: Callable[[], None] | None = None

    def done(self) -> bool:
        """Wait one slice and return whether the work is complete. Raises RuntimeError if it
        failed.
        """
        try:
            self.engine.wait(seconds(SLICE))
        except RuntimeError:
            if not self.engine.is_completed():
                return False
            self.engine.wait()  # it may have completed after the slice: only its own error matters
        return True


class PolledWork(Work):
    """Work on a GPU, polled for completion: `wait` of NCCL only orders streams."""

    def done(self) -> bool:
        """Poll for one slice and return whether the work is complete."""
        for _ in range(int(SLICE / POLL)):
            if self.engine.is_completed():
                self.engine.wait()
                return True
            sleep(POLL)
        return False


class Group:
    """Starts collectives of one engine on contiguous tensors; see `Rings` for their semantics."""

    def __init__(self, engine: Any, rank: int, size: int, *, polls: bool = False) -> None:
        self.engine = engine
        self.rank = rank
        self.size = size
        self._work = PolledWork if polls else Work
        self._dist = distributed()

    def all_reduce(self, tensor: Any, operation: str) -> Work:
        """Reduce in place on every rank."""
        options = self._dist.AllreduceOptions()
        options.reduceOp = self._reduction(operation)
        return self._work(self.engine.allreduce([tensor], options))

    def reduce(self, tensor: Any, operation: str, root: int) -> Work:
        """Reduce in place on the root; on other ranks the tensor is undefined afterwards."""
        options = self._dist.ReduceOptions()
        options.reduceOp = self._reduction(operation)
        options.rootRank = root
        return self._work(self.engine.reduce([tensor], options))

    def broadcast(self, tensor: Any, root: int) -> Work:
        """Copy the root's values to every rank."""
        options = self._dist.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        return self._work(self.engine.broadcast([tensor], options))

    def all_gather(self, result: Any, tensor: Any) -> Work:
        """Copy the tensors of all ranks, in rank order, into the flat `result`."""
        return self._work(self.engine._allgather_base(result, tensor))

    def reduce_scatter(self, result: Any, tensor: Any, operation: str) -> Work:
        """Reduce the flat tensor and store this rank's chunk in `result`."""
        options = self._dist.ReduceScatterOptions()
        options.reduceOp = self._reduction(operation)
        return self._work(self.engine._reduce_scatter_base(result, tensor, options))

    def scatter(self, result: Any, parts: Sequence[Any], root: int) -> Work:
        """Copy the root's chunk for this rank into `result`; other ranks pass no chunks."""
        options = self._dist.ScatterOptions()
        options.rootRank = root
        return self._work(self.engine.scatter([result], [list(parts)] if parts else [], options))

    def _reduction(self, operation: str) -> Any:
        return getattr(self._dist.ReduceOp, OPERATIONS[operation])
