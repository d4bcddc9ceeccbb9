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

    Each docstring begins with the arguments. `names` are names of variables on servers, `endpoints`
    that of the server of each.
    """

    def send(self, *given: Any) -> None:
        """(names, endpoints, arrays, rows, trainer_id, merge_add, through_communicator): set
        variables, or with `merge_add` add to them; sparse where `rows` has row numbers.

        Rows are numbered within the block that the server holds. With `through_communicator` the
        call may return before anything is sent, and gradients of several steps may be merged.
        """
        self._refuse()

    def recv(self, *given: Any) -> Sequence[Array]:
        """(names, endpoints, trainer_id): the values of variables; after `send_barrier`, those that
        the step's updates made.
        """
        self._refuse()

    def send_barrier(self, *given: Any) -> None:
        """(endpoints, trainer_id, half_async): end the gradients of a step, and wait for the
        updates.

        With `half_async`, wait until the communicator has sent everything.
        """
        self._refuse()

    def fetch_barrier(self, *given: Any) -> None:
        """(endpoints, trainer_id): end the receiving of a step's parameters."""
        self._refuse()

    def prefetch(self, *given: Any) -> Sequence[Array]:
        """(names, endpoints, rows, trainer_id): rows of tables, [count, width] each, numbered
        within the block of the server.
        """
        self._refuse()

    def save_tensor(self, *given: Any) -> None:
        """(file_path, array, overwrite): write an array as the file of one variable."""
        self._refuse()

    def checkpoint_notify(self, *given: Any) -> None:
        """(endpoints, directory, table, trainer_id): let servers save their part of a table below
        a directory.
        """
        self._refuse()

    def sum_over_servers(self, *given: Any) -> Array:
        """(name, array): the sum of an array over all servers of the job; each calls it once a
        step.
        """
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
