"""What generated code calls to reach parameter servers, where there are none.

A module finds one object under the global name `parameter_server`, which the loader gives it
(`runtime.loader.load(names={"parameter_server": …})`). Its methods are those of `Absent`; arrays
are C-contiguous NumPy arrays on the host. Servers run `listen_and_serv` outside of any module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from compiler.ir.types import Array


class Absent:
    """The `parameter_server` of a process that is connected to none: every method raises.

    `names` are names of variables on servers, `endpoints` that of the server of each.
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
        """Set variables, or with `merge_add` add to them; sparse where `rows` has row numbers.

        Rows are numbered within the block that the server holds. With `through_communicator` the
        call may return before anything is sent, and gradients of several steps may be merged.
        """
        self._refuse()

    def recv(
        self, names: Sequence[str], endpoints: Sequence[str], trainer_id: int
    ) -> Sequence[Array]:
        """The values of variables; after `send_barrier`, those that the step's updates made."""
        self._refuse()

    def send_barrier(self, endpoints: Sequence[str], trainer_id: int, half_async: bool) -> None:
        """Say that all gradients of a step are sent, and wait for the updates.

        With `half_async`, wait until the communicator has sent what it was given.
        """
        self._refuse()

    def fetch_barrier(self, endpoints: Sequence[str], trainer_id: int) -> None:
        """Say that all parameters of a step are received."""
        self._refuse()

    def prefetch(
        self,
        names: Sequence[str],
        endpoints: Sequence[str],
        rows: Sequence[Array],
        trainer_id: int,
    ) -> Sequence[Array]:
        """Rows of tables, [count, width] each; rows are numbered within the block of the server."""
        self._refuse()

    def checkpoint_notify(
        self, endpoints: Sequence[str], directory: str, table: str, trainer_id: int
    ) -> None:
        """Let servers save their part of a table below a directory."""
        self._refuse()

    def save_tensor(self, file_path: str, array: Array, overwrite: bool) -> None:
        """Write an array as the file of one variable."""
        self._refuse()

    def sum_over_servers(self, name: str, array: Array) -> Array:
        """The sum of an array over all servers of the job; each calls it once a step."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise RuntimeError(
            "the program exchanges variables with parameter servers, but this process is "
            "connected to none; run it by an Executor in a job whose servers run "
            "get_pserver_program"
        )


def reached(server: Any) -> Any:
    """The object a module was given to reach servers, or one whose methods say there are none."""
    return Absent() if server is None else server
