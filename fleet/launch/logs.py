"""Log files of the processes of a job: `workerlog.RANK`, as launchers of Paddle 1.8 name them.

stdout and stderr of a process are one file, in order. The first attempt is `workerlog.0`, the one
after a restart `workerlog.0.1`: no attempt overwrites another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any


def log_specs(
    folder: Path,
    shows: set[int] | None,
    names: Mapping[int, str] | None = None,
    starts: Callable[[], None] | None = None,
) -> Any:
    """The log configuration of torch's agent.

    `shows` are local ranks whose lines are also printed here, None for all; `names` are the log
    names of local ranks, by default derived from the rank. `starts` is called when processes are
    about to be started. Raises OSError if the folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    api = import_module("torch.distributed.elastic.multiprocessing.api")
    attempts = count()

    class Logs(api.LogsSpecs):  # its base is known only once torch is imported
        """Names the files of each attempt."""

        @property
        def root_log_dir(self) -> str:
            return str(folder)

        def reify(self, envs: dict[int, dict[str, str]]) -> Any:
            if starts is not None:
                starts()
            files = attempt_files(folder, next(attempts), envs, names)
            shown = {n: out for n, (out, _) in files.items() if shows is None or n in shows}
            for local, (_, error) in files.items():
                envs[local]["TORCHELASTIC_ERROR_FILE"] = error
            streams = {n: out for n, (out, _) in files.items()}
            errors = {n: error for n, (_, error) in files.items()}
            return api.LogsDest(
                stdouts=streams, stderrs=dict.fromkeys(streams, ""), tee_stdouts=shown,
                tee_stderrs={}, error_files=errors,
            )  # fmt: skip

    return Logs()


def attempt_files(
    folder: Path,
    attempt: int,
    envs: dict[int, dict[str, str]],
    names: Mapping[int, str] | None = None,
) -> dict[int, tuple[str, str]]:
    """The log and the error file of each local rank, in one attempt to run a job."""
    behind = f".{attempt}" if attempt else ""
    files: dict[int, tuple[str, str]] = {}
    for local, environ in envs.items():
        name = f"workerlog.{environ.get('RANK', local)}" if names is None else names[local]
        log = folder / f"{name}{behind}"
        error = log.with_name(f".{log.name}.error.json")
        error.unlink(missing_ok=True)
        files[local] = str(log), str(error)
    return files
