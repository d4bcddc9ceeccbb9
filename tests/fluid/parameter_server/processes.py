"""Starts the processes of a job and collects what they leave; none outlives a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.ports import free_endpoints

ROOT = Path(__file__).resolve().parents[3]
NORMED = {"equal_shares": True, "rows": 24, "epsilon": 0.1, "slower": 10}
"""For nets with batch norm: see `test_synchronous_training.py`."""
SECONDS = 60.0
"""How long a job may take until its test fails."""


def start(jobs: list[Any], role: str, number: int, **environ: str) -> subprocess.Popen[str]:
    """Start one process, which takes part in jobs one after the other."""
    known = {"OPENBLAS_NUM_THREADS": "1", "GRPC_VERBOSITY": "NONE", "PYTHONPATH": str(ROOT)}
    known["FLUID_PS_RECONNECT_SECONDS"] = "60"
    known["PYTHONDONTWRITEBYTECODE"] = ""
    file = Path(jobs[0]["out"]) / "jobs.json"
    file.write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "tests.fluid.parameter_server.role", str(file), role]
    return subprocess.Popen(
        [*command, str(number)], env={**os.environ, **known, **environ}, cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@contextmanager
def running(*jobs: dict[str, Any], **environ: str) -> Iterator[Any]:
    """The processes of jobs, servers and trainers; all are gone behind the block."""
    servers = max(len(job["endpoints"]) for job in jobs)
    trainers = max(job["trainers"] for job in jobs)
    started = [start(list(jobs), "server", n, **environ) for n in range(servers)]
    started += [start(list(jobs), "trainer", n, **environ) for n in range(trainers)]
    try:
        yield started[:servers], started[servers:]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def finished(processes: list[subprocess.Popen[str]], seconds: float = SECONDS) -> list[str]:
    """What processes wrote to stderr, when all have ended well; AssertionError otherwise."""
    end = time.monotonic() + seconds
    while None in (codes := [process.poll() for process in processes]) and not any(codes):
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    for process, code in zip(processes, codes, strict=True):
        if code is None:
            process.kill()
    texts = [process.communicate()[1] for process in processes]
    assert codes == [0] * len(processes), f"{codes}\n" + "\n".join(texts)
    return texts


def results(job: dict[str, Any]) -> list[dict[str, Any]]:
    """What each trainer of a job left."""
    files = [Path(job["out"]) / f"trainer_{n}.npz" for n in range(job["trainers"])]
    return [dict(np.load(file)) for file in files]


def trained(*jobs: dict[str, Any], seconds: float = SECONDS, **environ: str) -> list[Any]:
    """Run jobs to their ends in the same processes; what each trainer of each job left."""
    with running(*jobs, **environ) as (servers, trainers):
        finished(trainers + servers, seconds)
    return [results(job) for job in jobs]


def make_job(
    out: Path, model: str, optimizer: str, trainers: int = 2, servers: int = 2, **more: Any
) -> Any:
    """The description of a job, whose files go to the new folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    return {
        "model": model, "optimizer": optimizer, "trainers": trainers,
        "endpoints": free_endpoints(servers), "out": str(out), "rows": 6, "steps": 20, "epsilon": 1e-3,
        **(NORMED if model in ("lenet_bn", "se_resnext") else {}), **more,
    }  # fmt: skip
