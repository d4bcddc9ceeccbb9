"""A fork server that has imported torch, and forks one process for each requested script.

A rank started as `python SCRIPT` would import for two seconds; a fork is ready immediately, and is
still a separate process, in a separate session. Nothing that would start threads is run before the
fork.

Requests come over the socket whose descriptor is the argument: `{"script", "spec", "environment"}`
with the descriptors of its stdout and stderr, answered by `{"pid"}`; and `{"wait": pid}`, answered
by `{"code"}` once it ended.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

SCRIPTS = ("faulty_rank", "faulty_pool")
LONGEST = 1 << 16


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Answer requests; in a fork, return its request; None at the end of the socket."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, LONGEST, 2)
        if not data:
            return None
        request = json.loads(data)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            control.send(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
            continue
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            become(request, descriptors)
            control.close()
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(json.dumps({"pid": pid}).encode())


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Make this fork equivalent to `python SCRIPT SPEC`."""
    os.setsid()
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever a shell let this ignore
    sys.argv = [request["script"], json.dumps(request["spec"])]


def main() -> None:
    for name in (
        "runtime.collective.rings",
        *(f"tools.verify.workers.{script}" for script in SCRIPTS),
    ):
        importlib.import_module(name)
    importlib.import_module("runtime.collective.engine").distributed()
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads: forks of this process would hang"
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        importlib.import_module(f"tools.verify.workers.{request['script']}").main()


if __name__ == "__main__":
    main()
