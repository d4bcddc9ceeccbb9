"""Fork server: a process that has imported what workers need, and forks each of them.

Imports take a second of a core or more; a fork takes milliseconds and shares the memory. `main` is
the server, which ends with the process that started it; `ForkServer` is that process's side.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, NoReturn
from weakref import finalize

import numpy as np

from compiler.support.settings.setting import environment, export
from runtime.collective.engine import distributed
from runtime.errors import CollectiveError
from runtime.parallel.worker import WorkerSettings, run_worker
from runtime.parent_process import end_with

COMMAND = (
    "import sys; sys.path.append({root!r}); from runtime.parallel.fork_server import main; main()"
)
"""The code of a server: the package may have been found by a path that only the caller has."""

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Ranks share the cores of a machine: each uses one BLAS thread."""

QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Suppresses warnings about connections that end with their process."""

MAX_REPLY = 1 << 12
"""Bytes that a message of a server may have."""

_servers: dict[int, ForkServer] = {}
"""The server of each process, by PID: a forked child has another one."""
_lock = Lock()


class ForkServer:
    """The caller's side of a fork server."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = str(Path(__file__).resolve().parents[2])
        command = [sys.executable, "-P", "-c", COMMAND.format(root=root)]
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno()), str(os.getpid())],
            env={**environment(), **ONE_THREAD, **QUIET}, pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
        theirs.close()
        finalize(self, _close, self._connection, self._process, os.getpid())

    @property
    def pid(self) -> int:
        """The PID of the server."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the server has not ended."""
        return self._process.poll() is None

    def fork(self, settings: str, descriptors: Mapping[str, int], *, imports_torch: bool) -> int:
        """Fork a worker with these descriptors, by their names in `WorkerSettings`; returns its
        PID. Raises OSError if it cannot.

        With `imports_torch` the server imports torch before, once for all workers.

        The worker has the environment, the folder and the outputs that this process has now.
        """
        variables = {**environment(), **ONE_THREAD, **QUIET}
        text = {"settings": settings, "environment": variables, "folder": str(Path.cwd())}
        with _text_file(json.dumps(text | {"descriptors": [*descriptors]})) as file:
            passed = [file.fileno(), 1, 2, *descriptors.values()]
            return int(self._ask({"do": "fork", "imports_torch": imports_torch}, passed)["pid"])

    def reap(self, pid: int) -> int:
        """Wait for a worker to end; returns its exit code, negative for a signal."""
        return int(self._ask({"do": "reap", "pid": pid})["code"])

    def _ask(self, request: Mapping[str, object], descriptors: Sequence[int] = ()) -> Reply:
        with self._lock:
            socket.send_fds(self._connection, [json.dumps(request).encode()], [*descriptors])
            reply = self._connection.recv(MAX_REPLY)
        if not reply:
            raise OSError(f"the fork server (process {self.pid}) has ended")
        answer: Reply = json.loads(reply)
        return answer


Reply = Mapping[str, int]
"""The answer of a server to a request."""


def fork_server() -> ForkServer:
    """The fork server of this process, which is started if there is none."""
    with _lock:
        server = _servers.get(os.getpid())
        if server is None or not server.is_running:
            server = _servers[os.getpid()] = _started()
        return server


def _started() -> ForkServer:
    """Start a server from a thread that lives as long as this process.

    The kernel kills a server when the *thread* that started it ends (PR_SET_PDEATHSIG).
    """
    is_ready, servers, errors = Event(), list[ForkServer](), list[OSError]()

    def run() -> None:
        try:
            servers.append(ForkServer())
        except OSError as error:
            errors.append(error)
        is_ready.set()
        Event().wait()

    Thread(target=run, daemon=True, name="fork server").start()
    is_ready.wait()
    if errors:
        raise errors[0]
    return servers[0]


def _text_file(text: str) -> IO[bytes]:
    """A file in memory with a text, which may be longer than a message."""
    file = os.fdopen(os.memfd_create("worker", os.MFD_CLOEXEC), "w+b")
    file.write(text.encode())
    file.flush()
    file.seek(0)
    return file


def _close(connection: socket.socket, process: subprocess.Popen[bytes], owner: int) -> None:
    """End a server; does nothing in a forked child."""
    if os.getpid() == owner:
        connection.close()
        process.kill()
        process.wait()


# ---- the server --------------------------------------------------------------------------------


def main() -> None:
    """Run a server with the descriptor and the parent of the command line."""
    connection, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, MAX_REPLY, 8)
        if not data:
            os._exit(0)
        request = json.loads(data)
        if request["do"] == "fork":
            _prepare(imports_torch=request["imports_torch"])
            reply = {"pid": _fork(connection, descriptors)}
        else:
            _, status = os.waitpid(request["pid"], 0)
            reply = {"code": os.waitstatus_to_exitcode(status)}
        connection.send(json.dumps(reply).encode())


@cache
def _prepare(*, imports_torch: bool) -> None:
    """Import what workers need, and keep the collector from writing to the pages they share."""
    if imports_torch:
        with suppress(CollectiveError):  # each worker raises it for itself
            distributed()
    gc.collect()
    gc.freeze()


def _fork(connection: socket.socket, descriptors: Sequence[int]) -> int:
    """Fork a worker; returns its PID."""
    server = os.getpid()
    pid = os.fork()
    if not pid:
        connection.close()
        _become_worker(descriptors, server)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _become_worker(descriptors: Sequence[int], server: int) -> NoReturn:
    """Run a worker with descriptors of its settings, its outputs, and those that these name."""
    file, output, errors, *others = descriptors
    os.setpgid(0, 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    with os.fdopen(file, "rb") as text:
        request = json.loads(text.read())
    present = environment()
    export({**dict.fromkeys(present.keys() - request["environment"].keys())})
    export(request["environment"])
    os.chdir(request["folder"])
    random.seed()
    np.random.seed()
    settings = WorkerSettings(**json.loads(request["settings"]))
    own = dict(zip(request["descriptors"], others, strict=True))
    run_worker(replace(settings, **own, parent=server))


if __name__ == "__main__":
    main()
