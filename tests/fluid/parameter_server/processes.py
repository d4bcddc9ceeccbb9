"""Starts the processes of a job and collects what they leave; none outlives a test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60.0
"""How long a job may take until its test fails."""


def free_endpoints(count: int) -> list[str]:
    """Endpoints of this machine that nobody listens at."""
    found = []
    for _ in range(count):
        found.append(socket.socket())
        found[-1].bind(("127.0.0.1", 0))
    endpoints = [f"127.0.0.1:{each.getsockname()[1]}" for each in found]
    for each in found:
        each.close()
    return endpoints


def start(job: dict[str, Any], role: str, number: int, **environ: str) -> subprocess.Popen[str]:
    """Start one process of a job."""
    known = {"OPENBLAS_NUM_THREADS": "1", "GRPC_VERBOSITY": "NONE", "PYTHONPATH": str(ROOT)}
    known["FLUID_PS_RECONNECT_SECONDS"] = "15"
    known["PYTHONDONTWRITEBYTECODE"] = ""
    command = [sys.executable, "-m", "tests.fluid.parameter_server.role", json.dumps(job), role]
    return subprocess.Popen(
        [*command, str(number)], env={**os.environ, **known, **environ}, cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@contextmanager
def running(job: dict[str, Any], **environ: str) -> Iterator[Any]:
    """The processes of a job, servers and trainers; all are gone behind the block."""
    servers = [start(job, "server", n, **environ) for n in range(len(job["endpoints"]))]
    trainers = [start(job, "trainer", n, **environ) for n in range(job["trainers"])]
    try:
        yield servers, trainers
    finally:
        for process in [*servers, *trainers]:
            if process.poll() is None:
                process.kill()
            process.communicate()


def finished(processes: list[subprocess.Popen[str]], seconds: float = SECONDS) -> list[str]:
    """What processes wrote to stderr, when all have ended well; AssertionError otherwise."""
    end = time.monotonic() + seconds
    texts = []
    for process in processes:
        _, text = process.communicate(timeout=max(0.1, end - time.monotonic()))
        texts.append(text)
    codes = [process.returncode for process in processes]
    assert not any(codes), f"{codes}\n" + "\n".join(texts)
    return texts


def trained(job: dict[str, Any], **environ: str) -> list[dict[str, Any]]:
    """Run a job to its end; what each trainer left."""
    with running(job, **environ) as (servers, trainers):
        finished(trainers + servers)
    files = [Path(job["out"]) / f"trainer_{n}.npz" for n in range(job["trainers"])]
    return [dict(np.load(file)) for file in files]


def make_job(
    out: Path, model: str, optimizer: str, trainers: int = 2, servers: int = 2, **more: Any
) -> Any:
    """The description of a job."""
    return {
        "model": model, "optimizer": optimizer, "trainers": trainers,
        "endpoints": free_endpoints(servers), "out": str(out), "rows": 6, "steps": 20, **more,
    }  # fmt: skip
