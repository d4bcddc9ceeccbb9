"""Processes that run models for `cpu.py`: started when first needed, and again after a crash."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.workers.peers import Peer, started

ROOT = Path(__file__).resolve().parents[2]

INSTALL = "pip install --target DIR 'onnx<1.18' onnxruntime 'paddle2onnx<2', then PYTHONPATH=DIR"
"""How to add the packages that some peers need, without changing this environment."""

NO_REFERENCE = "give --reference PYTHON, one that has Paddle 1.8.5, or FLUID_REFERENCE_PYTHON"


class Missing(Exception):
    """A runner that cannot run, and why."""


class Runners:
    """The runners with a number of threads: `with Runners(...) as runners`."""

    def __init__(
        self, threads: int, reference: str | None = None, target: str | None = None
    ) -> None:
        self.threads, self._reference, self._target = threads, reference, target
        self._processes: dict[tuple[str, ...], tuple[ExitStack, Peer]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for command in list(self._processes):
            self._end(command)

    def ask(self, name: str, saved: bool, model: str, steps: int, warm: int = 0) -> dict[str, Any]:
        """Times of some runs, as `protocol.each`; Missing without such a runner, or if it ended."""
        command = self._command(name, saved)
        mode = {"cached": "cached", "torch compile": "compiled"}.get(name, "plain")
        try:
            return self._started(command).reply(model, mode, steps, warm=warm)
        except RuntimeError as error:
            self._end(command)
            raise Missing(f"{name}: {_last_line(str(error))}") from error

    def drop(self) -> None:
        """Let every process drop its models."""
        for command, (_, peer) in list(self._processes.items()):
            try:
                peer.reply("", "", 0)
            except RuntimeError:
                self._end(command)

    def _started(self, command: tuple[str, ...]) -> Peer:
        if command not in self._processes:
            stack = ExitStack()
            peer = stack.enter_context(started(command, self.environment(command[0])))
            self._processes[command] = stack, peer
        return self._processes[command][1]

    def _end(self, command: tuple[str, ...]) -> None:
        stack, _ = self._processes.pop(command)
        stack.close()

    def _command(self, name: str, saved: bool) -> tuple[str, ...]:
        """The command of a runner: of saved models or of training steps."""
        python = sys.executable
        if name in ("cached", "paddle"):
            if self._reference is None:
                raise Missing(NO_REFERENCE)
            python = self._reference
        if name == "onnxruntime" and find_spec(name) is None:
            raise Missing(f"{name} is not installed: {INSTALL}")
        workers = ROOT / "bench" / "workers"
        if saved:
            who = {"ours": "fluid"}.get(name, name)
            return python, str(workers / "predictors.py"), who
        if name.startswith("torch"):
            return python, str(workers / "torch_step.py")
        ours = ("--fluid", "fluid") if name == "ours" else ()
        return python, str(workers / "fluid_step.py"), *ours

    def environment(self, python: str) -> Mapping[str, str]:
        """Variables that set the threads of every library, and the target of ours."""
        names = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CPU_NUM"
        environment = dict.fromkeys((*names, "FLAGS_paddle_num_threads"), str(self.threads))
        if python == self._reference:
            return environment | {"PYTHONPATH": "", "GLOG_minloglevel": "2"}
        return environment | ({"FLUID_TARGET": self._target} if self._target else {})


def _last_line(text: str) -> str:
    """The line of a traceback that names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "Traceback" not in line]
    return (errors or lines or ["the process ended without output"])[-1][:200]
