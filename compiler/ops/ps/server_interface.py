"""The interface of generated code to parameter servers.

A module accesses one object by the global name `parameter_server`, provided by the loader
(`runtime.loader.load(names={"parameter_server": …})`), a `ServerInterface`. Arrays are C-contiguous
NumPy arrays on the host. Servers run `listen_and_serv` outside of any module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compiler.ir.types import Array


class ServerInterface(Protocol):
    """The calls of ops to the parameter servers of a job.

    `names` are names of variables on servers, `endpoints` the server of each. Each call raises a
    RuntimeError if a server does not answer.
    """

    def send(
        self,
        names: Sequence[str],
        endpoints: Sequence[str],
        arrays: Sequence[Array],
        rows: Sequence[Array] | None,
        trainer_id: int,
        merge_add: bool,
        through_communicator: bool,
    ) -> None:
        """Set variables on servers, or add to them with `merge_add`.

        Sparse if `rows` has row indices, int64, relative to the server's block. With
        `through_communicator` the call may return before sending, and gradients of several steps
        may be merged.
        """
        ...

    def recv(
        self, names: Sequence[str], endpoints: Sequence[str], trainer_id: int
    ) -> Sequence[Array]:
        """Return the values of variables; after `send_barrier`, with the step's updates."""
        ...

    def send_barrier(self, endpoints: Sequence[str], trainer_id: int, half_async: bool) -> None:
        """End the gradients of a step and wait for the updates.

        With `half_async`, wait until the communicator has sent everything.
        """
        ...

    def fetch_barrier(self, endpoints: Sequence[str], trainer_id: int) -> None:
        """End the receiving of a step's parameters."""
        ...

    def prefetch(
        self,
        names: Sequence[str],
        endpoints: Sequence[str],
        rows: Sequence[Array],
        trainer_id: int,
    ) -> Sequence[Array]:
        """Return rows of tables, [count, width] each, by indices relative to the server's block."""
        ...

    def save_tensor(self, file_path: str, array: Array, overwrite: bool) -> None:
        """Write an array as the file of one variable."""
        ...

    def checkpoint_notify(
        self, endpoints: Sequence[str], directory: str, table: str, trainer_id: int
    ) -> None:
        """Make the servers save their shards of a table below a directory."""
        ...

    def sum_over_servers(self, name: str, array: Array) -> Array:
        """Return the sum of an array over all servers of the job; each calls it once per step."""
        ...


def connected(servers: ServerInterface | None) -> ServerInterface:
    """Return the servers of the job. Raises RuntimeError in a process that is connected to none."""
    if servers is None:
        raise RuntimeError(
            "the program exchanges variables with parameter servers, but this process is "
            "connected to none; run it by an Executor in a job whose servers run "
            "get_pserver_program"
        )
    return servers
