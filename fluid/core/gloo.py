"""`core.Gloo`: collectives of lists of numbers between processes that name their own rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.types import Array
from runtime.collective.rings import Rings

__all__ = ["Gloo"]

RING = 0
MODES = ("sum", "min", "max")


class Gloo:
    """The processes of a group; `init` connects them, and a single process needs nobody.

    Several processes meet at the endpoint of `set_http_store`, which rank 0 hosts; folders of
    Hadoop are accepted for one process only. Methods that communicate raise RuntimeError before
    `init`, and CollectiveError if another process is missing.
    """

    def __init__(self) -> None:
        self._rank, self._size, self._prefix = 0, 1, ""
        self._endpoint = ""
        self._seconds: float | None = None
        self._rings: Rings | None = None

    def rank(self) -> int:
        """This process's rank."""
        return self._rank

    def size(self) -> int:
        """The number of processes."""
        return self._size

    def set_rank(self, rank: int) -> None:
        """Set this process's rank."""
        self._rank = rank

    def set_size(self, size: int) -> None:
        """Set the number of processes."""
        self._size = size

    def set_prefix(self, prefix: str) -> None:
        """Set the name that keeps several groups at one endpoint apart."""
        self._prefix = prefix

    def set_iface(self, iface: str) -> None:
        """Accepted without effect: the endpoint selects the network interface."""

    def set_timeout_seconds(self, init_seconds: int, run_seconds: int) -> None:
        """Set how long processes are waited for; by default FLAGS_rpc_deadline."""
        self._seconds = float(min(init_seconds, run_seconds))

    def set_hdfs_store(self, path: str, fs_name: str, fs_ugi: str) -> None:
        """Accepted for a single process, which meets nobody."""

    def set_http_store(self, ip: str, port: int, scope: str) -> None:
        """Set the endpoint where processes meet, and the name of their group."""
        self._endpoint, self._prefix = f"{ip}:{port}", scope

    def init(self) -> None:
        """Connect the processes. Raises ValueError if several have no endpoint to meet at."""
        if self._size > 1 and not self._endpoint:
            raise ValueError(
                f"{self._size} processes have no place to meet: "
                "call set_http_store(ip, port, scope) before init"
            )
        rings, name = Rings(self._seconds), self._prefix or "gloo"
        if self._size > 1:
            rings.create_id(name, self._rank, [self._endpoint], size=self._size)
            rings.init_ring(RING, name, self._size, self._rank)
        self._rings = rings

    def barrier(self) -> None:
        """Wait until every process has called this."""
        rings = self._initialized()
        if self._size > 1:
            rings.barrier(RING, "barrier")

    def all_reduce(self, values: Sequence[float], mode: str = "sum") -> list[float]:
        """Reduce each number over the processes by "sum", "min" or "max"; ValueError otherwise."""
        rings = self._initialized()
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}, expected one of {', '.join(MODES)}")
        result: Array = np.array(values)
        if self._size > 1:
            rings.all_reduce(RING, f"all_reduce {mode}", mode, result)
        return result.tolist()

    def all_gather(self, value: float) -> list[float]:
        """Return the number of each process, in rank order."""
        rings = self._initialized()
        own: Array = np.array([value])
        gathered = rings.all_gather(RING, "all_gather", own) if self._size > 1 else own
        return gathered.tolist()

    def _initialized(self) -> Rings:
        if self._rings is None:
            raise RuntimeError("the processes are not connected: call init() first")
        return self._rings
