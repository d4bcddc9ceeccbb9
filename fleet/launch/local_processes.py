"""Processes of one machine whose environment is known before they start.

torch.distributed.elastic starts, watches and ends them; they find each other by their endpoints.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from compiler.support.dataclass import dataclass
from fleet.launch.logs import log_specs
from fluid.recording.narrowing import is_mapping

__all__ = ["SECONDS_TO_END", "LocalProcesses", "failure_text", "worker_arguments"]

SECONDS_TO_END = 10
"""Seconds that processes have to exit after SIGTERM; then they are killed."""

_WORKER = "workerlog."
POLL_SECONDS = 0.1
"""The time between two looks at the processes."""


def worker_arguments(
    script: Path, arguments: Sequence[str], options: Sequence[str], force: bool, cpu: bool
) -> list[str]:
    """The command line of `fleet.launch.worker`, with its `options`."""
    flags = [f"--parent={os.getpid()}", *options, *["--force"] * force, *["--cpu"] * cpu]
    return [*flags, "--", str(script), *arguments]


@dataclass(frozen=True)
class LocalProcesses:
    """Processes that run one script: `variables` are their environments, `names` their logs.

    `launcher` is the command that starts them, for messages; `command` are the arguments of
    `fleet.launch.worker`; `folder` has the logs and `shows` are the numbers of those whose lines
    are also printed here, None for all.
    """

    launcher: str
    script: Path
    command: Sequence[str]
    variables: Mapping[int, dict[str, str]]
    names: Mapping[int, str]
    folder: Path
    shows: set[int] | None

    def start(self) -> Any:
        """Start them; returns torch's context of running processes."""
        return import_module("torch.distributed.elastic.multiprocessing").start_processes(
            name=self.launcher,
            entrypoint=sys.executable,
            args=dict.fromkeys(self.variables, ("-u", "-m", "fleet.launch.worker", *self.command)),
            envs=dict(self.variables),
            logs_specs=log_specs(self.folder, self.shows, self.names),
            log_line_prefixes={
                number: f"[{self._short(name)}] " for number, name in self.names.items()
            },
        )

    def _short(self, name: str) -> str:
        """A log's name before its lines: the number alone if there are workers only."""
        only_workers = all(other.startswith(_WORKER) for other in self.names.values())
        return name.removeprefix(_WORKER) if only_workers else name

    def exit_code(self, context: Any, seconds: float = POLL_SECONDS) -> int | None:
        """Wait some seconds; 0 if all have succeeded, None if they run.

        If one failed, its failure is reported and the result is the job's exit code.
        """
        result = context.wait(seconds, POLL_SECONDS)
        if result is None:
            return None
        return self._report(result) if result.is_failed() else 0

    def _report(self, result: Any) -> int:
        """Print the first failure; returns the job's exit code."""
        first = min(result.failures.values(), key=lambda failure: failure.timestamp)
        name = self.names[first.local_rank].replace("log.", " ")
        text, code = failure_text(f"{name} (pid {first.pid})", first, self.script)
        print(f"\nfluid {self.launcher}: {text}", file=sys.stderr)
        return code


def failure_text(where: str, failure: Any, script: Path) -> tuple[str, int]:
    """Describe the first failure, with its traceback last; return the text and the job's exit
    code.
    """
    code = int(failure.exitcode)
    by = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    text = f"{where} failed first, with {by}"
    if code >= 0:
        text += f"\n{_traceback(failure.message, script)}"
    return text, 128 - code if code < 0 else code or 1


def _traceback(message: object, script: Path) -> str:
    """The recorded traceback of a process, starting with the frames of the script."""
    if not is_mapping(message):
        return str(message)
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if is_mapping(extra) else None
    text = str(stack or message.get("message"))
    head, first, rest = text.partition(f'  File "{script}"')
    return f"{head.splitlines()[0]}\n{first}{rest}".rstrip() if first else text.rstrip()
