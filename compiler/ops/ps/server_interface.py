"""The interface of generated code to parameter servers, and its fallback without servers.

A module accesses one object by the global name `parameter_server`, provided by the loader
(`runtime.loader.load(names={"parameter_server": …})`). Its methods are those of `NoServers`; arrays
are C-contiguous NumPy arrays on the host. Servers run `listen_and_serv` outside of any module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from compiler.ir.types import Array


class NoServers:
    """The `parameter_server` of a process without servers: every method raises RuntimeError.

    Each docstring begins with the arguments. `names` are names of variables on servers, `endpoints`
    the server of each.
    """

    def send(self, *given: Any) -> None:
        """(names, endpoints, arrays, rows, trainer_id, merge_add, through_communicator): set them.

        Sets variables, or adds to them with `merge_add`; sparse if `rows` has row indices, relative
        to the server's block. With `through_communicator` the call may return before sending, and
        gradients of several steps may be merged.
        """
        self._raise_no_servers()

    def recv(self, *given: Any) -> Sequence[Array]:
        """(names, endpoints, trainer_id): return the values of variables.

        After `send_barrier`, the values include the step's updates.
        """
        self._raise_no_servers()

    def send_barrier(self, *given: Any) -> None:
        """(endpoints, trainer_id, half_async): end the gradients of a step, wait for the updates.

        With `half_async`, wait until the communicator has sent everything.
        """
        self._raise_no_servers()

    def fetch_barrier(self, *given: Any) -> None:
        """(endpoints, trainer_id): end the receiving of a step's parameters."""
        self._raise_no_servers()

    def prefetch(self, *given: Any) -> Sequence[Array]:
        """(names, endpoints, rows, trainer_id): return rows of tables, [count, width] each.

        Rows are indexed relative to the server's block.
        """
        self._raise_no_servers()

    def save_tensor(self, *given: Any) -> None:
        """(file_path, array, overwrite): write an array as the file of one variable."""
        self._raise_no_servers()

    def checkpoint_notify(self, *given: Any) -> None:
        """(endpoints, directory, table, trainer_id): save the servers' shards of a table.

        Files are written below the directory.
        """
        self._raise_no_servers()

    def sum_over_servers(self, *given: Any) -> Array:
        """(name, array): return the sum of an array over all servers of the job.

        Each server calls it once per step.
        """
        self._raise_no_servers()

    def _raise_no_servers(self) -> NoReturn:
        raise RuntimeError(
            "the program exchanges variables with parameter servers, but this process is "
            "connected to none; run it by an Executor in a job whose servers run "
            "get_pserver_program"
        )


def server_interface(server: Any) -> Any:
    """Return the module's server interface, or one whose methods raise if there is none."""
    return NoServers() if server is None else server
