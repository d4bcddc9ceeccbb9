"""Jobs whose processes are killed and stopped at random moments; no update may be lost or doubled.

Every trainer adds known integers to a parameter, so that its final value shows how often each
step was applied. With policy `wait`, killed servers and trainers are restarted and the value
must be exact. With `fail`, a killed trainer must end the job by an error that names it. With
`shrink`, the others must finish without it.

    .venv/bin/python tools/verify/chaos.py --policy wait --faults 50
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import fluid
from fluid.parameter_server import trainer_step
from runtime.ps.serving.snapshot import read_snapshot
from tests.support.ports import free_endpoints

ROOT = Path(__file__).resolve().parents[2]
SIZE = 20000
"""Elements of the parameter: two blocks."""
MARGIN = {"wait": 0, "fail": 50, "shrink": 50}
"""Steps at the end without faults; with policy `wait` a process may be killed while completing."""
LOST = {"wait": "30", "fail": "4", "shrink": "4"}
"""FLUID_PS_LOST_SECONDS: with `wait`, how long servers wait for a trainer killed at its end."""
END_SECONDS = 60.0
"""Timeout of a job after its last fault."""


def amounts(trainer: int, step: int) -> np.ndarray:
    """The values that a trainer subtracts in a step; integers, so that sums are exact."""
    return ((np.arange(SIZE) * 7 + step * (trainer + 1)) % 13).astype("float32").reshape(1, SIZE)


def programs(job: dict[str, Any], number: int) -> Any:
    """The transpiler and the programs of one process."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [SIZE, 1])
        zero = fluid.initializer.Constant(0.0)
        w = fluid.layers.create_parameter([SIZE, 1], "float32", "w", default_initializer=zero)
        loss = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(w, x))
        fluid.optimizer.SGD(1.0).minimize(loss)
    transpiler = fluid.DistributeTranspiler()
    endpoints = ",".join(job["endpoints"])
    transpiler.transpile(number, main, endpoints, job["trainers"], True, startup)
    return transpiler, main, startup, loss


def serve(job: dict[str, Any], number: int) -> None:
    """Run a server."""
    endpoint = job["endpoints"][number]
    main, startup = programs(job, 0)[0].get_pserver_programs(endpoint)
    executor = fluid.Executor()
    executor.run(startup)
    executor.run(main)


def train(job: dict[str, Any], number: int) -> None:
    """Run a trainer from the step that its servers have."""
    _, main, startup, loss = programs(job, number)
    executor = fluid.Executor()
    executor.run(startup)
    while (step := trainer_step(main) + 1) <= job["steps"]:
        executor.run(main, feed={"x": amounts(number, step).reshape(SIZE, 1)}, fetch_list=[loss])
        time.sleep(job["pause"])
    value = np.array(fluid.global_scope().find_var("w").get_tensor())
    executor.close()
    np.save(Path(job["out"]) / f"trainer_{number}.npy", value)


class Chaos:
    """One job and its faults."""

    def __init__(self, job: dict[str, Any], policy: str, seed: int) -> None:
        self.job, self.policy, self.random = job, policy, random.Random(seed)
        self.processes: dict[tuple[str, int], subprocess.Popen[str]] = {}
        self.counts: dict[str, int] = {}

    def start(self, role: str, number: int) -> None:
        """Start one process of the job."""
        environ = {
            "FLUID_PS_POLICY": self.policy, "FLUID_PS_HEARTBEAT_SECONDS": "1",
            "FLUID_PS_LOST_SECONDS": LOST[self.policy], "FLUID_PS_RETURN_SECONDS": "2",
            "FLUID_PS_RECONNECT_SECONDS": "40", "FLUID_PS_SNAPSHOT_DIR": self.job["out"],
            "FLUID_PS_SNAPSHOT_STEPS": "10", "FLAGS_rpc_deadline": "60000",
            "OPENBLAS_NUM_THREADS": "1", "GRPC_VERBOSITY": "NONE",
            "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "", "FLUID_PS_LOG": "text",
        }  # fmt: skip
        log = (Path(self.job["out"]) / f"{role}_{number}.log").open("a")
        command = [sys.executable, __file__, "--role", role, "--number", str(number)]
        self.processes[role, number] = subprocess.Popen(
            [*command, "--job", json.dumps(self.job)], env={**os.environ, **environ}, text=True,
            stdout=log, stderr=log,
        )  # fmt: skip
        log.close()

    def run(self, faults: int) -> bool:
        """Run the job with faults; return whether it ended as its policy requires."""
        for role, count in (
            ("server", len(self.job["endpoints"])),
            ("trainer", self.job["trainers"]),
        ):
            for number in range(count):
                self.start(role, number)
        try:
            self._await_beginning()
            for _ in range(faults):
                if not self._is_training():
                    break
                self._fault()
            return self._ended()
        finally:
            self._kill_all()

    def _await_beginning(self) -> None:
        """Wait until steps are made: a server has taken a snapshot."""
        end = time.monotonic() + END_SECONDS
        while time.monotonic() < end and not list(Path(self.job["out"]).glob("*.snapshot")):
            time.sleep(0.1)

    def _is_training(self) -> bool:
        """Whether trainers run and the end is not near."""
        trainers = [p for (role, _), p in self.processes.items() if role == "trainer"]
        snapshots = [read_snapshot(path) for path in Path(self.job["out"]).glob("*.snapshot")]
        step = max((snapshot.step for snapshot in snapshots if snapshot is not None), default=0)
        last = self.job["steps"] - MARGIN[self.policy]
        return any(p.poll() is None for p in trainers) and step < last

    def _fault(self) -> None:
        """Kill or stop a running process, and with policy `wait` restart it."""
        kinds = ["server", "trainer"] if self.policy == "wait" else ["trainer"]
        role = self.random.choice(kinds)
        number = self.random.choice([n for r, n in self.processes if r == role])
        process = self.processes[role, number]
        kind = self.random.choice(["kill", "stop"]) if self.policy == "wait" else "kill"
        self.counts[f"{kind} {role}"] = self.counts.get(f"{kind} {role}", 0) + 1
        if kind == "stop":
            process.send_signal(signal.SIGSTOP)
            time.sleep(self.random.uniform(0.1, 3.0))
            process.send_signal(signal.SIGCONT)
        elif process.poll() is None:
            process.kill()
            process.wait()
            if self.policy == "wait":
                self.start(role, number)
        time.sleep(self.random.uniform(0.2, 2.0))

    def _ended(self) -> bool:
        end = time.monotonic() + END_SECONDS + self.job["steps"] * self.job["pause"]
        for name, process in self.processes.items():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"{name} has not ended", file=sys.stderr)
                self._print_stacks()
                return False
        codes = {f"{r}_{n}": p.returncode for (r, n), p in self.processes.items()}
        if self.policy == "fail":
            named = [self._log(name) for name, code in codes.items() if code not in (0, -9)]
            return bool(named) and all("is lost" in text and "trainer" in text for text in named)
        if self.policy == "shrink":
            return sum(code == 0 for code in codes.values()) >= len(codes) - sum(
                self.counts.values()
            )
        fine = all(code == 0 or self._came_late(name) for name, code in codes.items())
        return fine and self._is_exact()

    def _print_stacks(self) -> None:
        """Let the processes that run write the stacks of their threads to their logs."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)

    def _came_late(self, name: str) -> bool:
        """Whether a process that was killed while it exited came back after the end of the job, and
        ended by the error that says so.
        """
        last = self._log(name)[-3000:]
        if name.startswith("server"):
            return "no trainer has connected to server" in last
        return (Path(self.job["out"]) / f"{name}.npy").exists() and "does not answer" in last

    def _is_exact(self) -> bool:
        """Whether every step of every trainer was applied exactly once."""
        trainers, steps = self.job["trainers"], self.job["steps"]
        total = np.zeros(SIZE, "float64")
        for step in range(1, steps + 1):
            total -= sum(amounts(t, step).reshape(-1) for t in range(trainers)) / trainers
        sums = [np.load(Path(self.job["out"]) / f"trainer_{t}.npy") for t in range(trainers)]
        return all(
            np.array_equal(sum_of_trainer.reshape(-1), total.astype("float32"))
            for sum_of_trainer in sums
        )

    def _log(self, name: str) -> str:
        return (Path(self.job["out"]) / f"{name}.log").read_text()

    def _kill_all(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


def ports_are_free(endpoints: list[str]) -> bool:
    """Whether no process listens at the endpoints any more."""
    for endpoint in endpoints:
        host, port = endpoint.split(":")
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return False
    return True


def attack(
    policy: str, faults: int, steps: int, seed: int = 0, pause: float = 0.02
) -> Chaos | None:
    """Run one job with faults; None if it did not end as its policy requires."""
    with tempfile.TemporaryDirectory() as out:
        job = {"endpoints": free_endpoints(2), "trainers": 2, "steps": steps, "out": out}
        chaos = Chaos({**job, "pause": pause}, policy, seed)
        fine = chaos.run(faults) and ports_are_free(job["endpoints"])
        if not fine:
            for log in sorted(Path(out).glob("*.log")):
                print(f"---- {log.name}\n{log.read_text()[-9000:]}", file=sys.stderr)
        return chaos if fine else None


def main() -> None:
    """Run the requested jobs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", choices=["wait", "fail", "shrink"], action="append")
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        {"server": serve, "trainer": train}[options.role](json.loads(options.job), options.number)
        return
    failed = False
    for policy in options.policy or ["wait", "fail", "shrink"]:
        started = time.monotonic()
        faults = options.faults if policy == "wait" else 1
        outcome = attack(policy, faults, options.steps, options.seed)
        failed |= outcome is None
        what = (
            "did not end as it should"
            if outcome is None
            else f"ended as it should, {outcome.counts}"
        )
        print(f"{policy:7} {what}, {time.monotonic() - started:.0f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()
