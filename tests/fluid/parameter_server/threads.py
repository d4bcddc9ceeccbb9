"""A job whose roles are threads of one process, over real sockets: quick to start."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import fluid
from tests.fluid.parameter_server import role

SECONDS = 40.0
BUILDING = threading.RLock()
"""Default programs are global: one thread builds at a time."""


def serve(job: dict[str, Any], number: int) -> None:
    """Run a server."""
    endpoint = job["endpoints"][number]
    with BUILDING:
        main, startup = role.transpiled(job, 0)[0].get_pserver_programs(endpoint)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    executor.run(main, scope=scope)


def train(job: dict[str, Any], number: int) -> None:
    """Run a trainer."""
    with BUILDING:
        created = role.transpiled(job, number)
    role.train_transpiled(job, number, created, fluid.Scope())


def trained(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a job to its end; what each trainer left."""
    errors: list[Exception] = []

    def guarded(call: Any, number: int) -> None:
        try:
            call(job, number)
        except Exception as error:
            errors.append(error)
            raise

    roles = [(serve, n) for n in range(len(job["endpoints"]))]
    roles += [(train, n) for n in range(job["trainers"])]
    threads = [threading.Thread(target=guarded, args=each, daemon=True) for each in roles]
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    while any(count.is_alive() for count in threads) and not errors and time.monotonic() < end:
        time.sleep(0.02)
    if errors:
        raise errors[0]
    assert not any(count.is_alive() for count in threads), "a role still waits"
    files = [Path(job["out"]) / f"trainer_{n}.npz" for n in range(job["trainers"])]
    return [dict(np.load(file)) for file in files]
