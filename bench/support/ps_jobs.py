"""Jobs of two trainers and two servers in separate processes, and their output."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runtime.ps.settings import Settings
from runtime.ps.wire.peers import Peers
from tests.support.ports import free_endpoints

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ROOT / "bench" / "workers"
SECONDS = 300.0
"""Timeout of a job."""
COUNT = 2
"""Number of trainers, and of servers."""
WARM_STEPS = 200
"""Steps before a long run is measured."""


@dataclass(frozen=True)
class Running:
    """The processes of a job, and the endpoints of its servers."""

    endpoints: list[str]
    servers: list[subprocess.Popen[str]]
    trainers: list[subprocess.Popen[str]]

    def megabytes(self) -> list[float]:
        """Resident memory of each process, servers first. RuntimeError if one has ended."""
        return [resident_megabytes(process) for process in [*self.servers, *self.trainers]]


def resident_megabytes(process: subprocess.Popen[str]) -> float:
    """Resident memory of a process in MB of 10^6 bytes. RuntimeError if it has ended."""
    if process.poll() is not None:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    text = Path(f"/proc/{process.pid}/status").read_text()
    kilobytes = text.partition("VmRSS:")[2].split()[0]
    return int(kilobytes) * 1024 / 1e6


@dataclass(frozen=True)
class Job:
    """A script of `workers/` under some Python; `environ` is for all of its processes.

    Each process is called with `before`, its role, its number, the endpoints, and `behind`.
    """

    python: str
    script: str
    before: tuple[str, ...]
    behind: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict[str, str])

    @contextmanager
    def running(self) -> Iterator[Running]:
        """The processes of the job; all have ended after the block."""
        endpoints = free_endpoints(COUNT)
        started = [
            self._start(role, number, ",".join(endpoints))
            for role in ("server", "trainer")
            for number in range(COUNT)
        ]
        try:
            yield Running(endpoints, started[:COUNT], started[COUNT:])
        finally:
            for process in reversed(started):
                process.kill()
                with process:
                    process.wait()

    def _start(self, role: str, number: int, endpoints: str) -> subprocess.Popen[str]:
        environment = {
            "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "GLOG_v": "0",
            "PYTHONPATH": str(ROOT), "GRPC_VERBOSITY": "NONE", "PYTHONDONTWRITEBYTECODE": "",
        }  # fmt: skip
        script = str(WORKERS / self.script)
        return subprocess.Popen(
            [self.python, script, *self.before, role, str(number), endpoints, *self.behind],
            env={**os.environ, **environment, **self.environ}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def measured(self) -> dict[str, float]:
        """The line of the slowest trainer; empty for a job that did not end."""
        with self.running() as running:
            try:
                texts = [process.communicate(timeout=SECONDS)[0] for process in running.trainers]
                return min((json.loads(text) for text in texts), key=lambda line: line["rate"])
            except (subprocess.TimeoutExpired, ValueError):
                return {}


def alternated(jobs: Mapping[str, Job], rounds: int) -> dict[str, dict[str, float]]:
    """The medians of each number of each job, which run alternately."""
    lines_by_job: dict[str, list[dict[str, float]]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            lines_by_job[name].append(job.measured())
    return {name: medians([line for line in lines if line]) for name, lines in lines_by_job.items()}


def medians(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each number.

    >>> medians([{"rate": 1.0}, {"rate": 5.0}, {"rate": 2.0}])
    {'rate': 2.0}
    """
    names = lines[0] if lines else ()
    return {name: statistics.median(line[name] for line in lines) for name in names}


# ---- certificates


def certificates(folder: Path) -> dict[str, str]:
    """Variables of mutual TLS, with a self-signed certificate for 127.0.0.1."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out",
         str(certificate)], check=True, capture_output=True,
    )  # fmt: skip
    both = {"FLUID_PS_CERT": str(certificate), "FLUID_PS_KEY": str(key)}
    return both | {"FLUID_PS_CA": str(certificate)}


# ---- long runs


def soak(job: Job, intervals: int, seconds: float) -> Iterator[tuple[float, list[float]]]:
    """Steps per second, and MB of each process, servers first, for every interval of a running job.

    Raises WireError if the servers no longer answer, RuntimeError if a process ended.
    """
    with job.running() as running, closing(Peers(Settings.from_env())) as peers:

        def step() -> int:
            server = running.endpoints[0]
            return int(peers.call(server, {"do": "status"}, seconds=SECONDS)[0]["step"])

        while step() < WARM_STEPS:
            time.sleep(1.0)
        for _ in range(intervals):
            since, before = time.monotonic(), step()
            time.sleep(seconds)
            yield (step() - before) / (time.monotonic() - since), running.megabytes()
