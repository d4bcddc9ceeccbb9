"""Runs a job with torch's elastic agent: rendezvous, restarts, shutdown.

No process is supervised here. This module adds names of logs, the first failure's exit code and
traceback, and a setting without which a restarted job would connect to the addresses of the dead
one.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compiler.support.settings.setting import export
from compiler.support.settings.systems import TORCH_DISABLE_SHARE_RDZV_TCP_STORE
from fleet.launch.logs import log_specs
from fleet.launch.variables import PADDLE_VARIABLES
from fluid.recording.narrowing import is_mapping
from runtime.collective.engine import distributed

SECONDS_TO_END = 10
"""Seconds that processes have to exit after SIGTERM; then they are killed."""


@dataclass(frozen=True)
class LaunchJob:
    """A script to run in `processes` processes on each of several machines.

    `gpus` are those of this machine, none on CPUs; `started_port` is the first process's port, None
    for free ones; `master` is `host:port` of the rendezvous, "" for one machine; `address` is this
    machine's, None to look it up; `rendezvous` has settings of torch's by name; `log_dir` is None
    to print everything here.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    processes: int = 1
    gpus: tuple[str, ...] = ()
    started_port: int | None = None
    least_machines: int = 1
    most_machines: int = 1
    master: str = ""
    address: str | None = None
    max_restarts: int = 0
    log_dir: Path | None = None
    job_id: str = "fluid"
    force: bool = False
    cpu: bool = False
    rendezvous: tuple[tuple[str, str], ...] = ()


def run_job(job: LaunchJob) -> int:
    """Run a job to its end; return 0, or the exit code of the process that failed first.

    A process killed by a signal counts as 128 + its number, as in a shell. The first failure is
    reported last, with its traceback. Raises CollectiveError without torch.
    """
    distributed()
    if job.master:
        print(meeting(job), file=sys.stderr, flush=True)
    export({TORCH_DISABLE_SHARE_RDZV_TCP_STORE.name: "1"})
    export(dict.fromkeys(PADDLE_VARIABLES))  # those of a job around this one
    if job.log_dir is not None:
        return _run(job, job.log_dir, {0})
    with TemporaryDirectory(prefix="fluid-launch-") as folder:
        return _run(job, Path(folder), None)


def meeting(job: LaunchJob) -> str:
    """What a launcher says that waits for other machines, before any process is started."""
    least, most = job.least_machines, job.most_machines
    number = f"{least}" if least == most else f"{least} to {most}"
    where = f"meets {number} machines at {job.master}"
    return f"fluid launch: {where}; each of them runs the same command"


def _run(job: LaunchJob, folder: Path, shows: set[int] | None) -> int:
    elastic = import_module("torch.distributed.launcher.api")
    errors = import_module("torch.distributed.elastic.multiprocessing.errors")
    ended = import_module("torch.distributed.elastic.multiprocessing.api").SignalException
    launch = elastic.elastic_launch(_config(elastic, job, folder, shows), sys.executable)
    try:
        launch("-m", "fleet.launch.worker", *_worker_arguments(job))
    except errors.ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        return report(rank, failure, job.script)
    except ended as stopped:
        print(f"fluid launch: stopped by {stopped.sigval.name}; all ended", file=sys.stderr)
        return 128 + int(stopped.sigval)
    return 0


def _config(elastic: Any, job: LaunchJob, folder: Path, shows: set[int] | None) -> Any:
    """The configuration of torch's agent; fields that this version of torch lacks are omitted."""
    wanted: dict[str, Any] = {
        "min_nodes": job.least_machines,
        "max_nodes": job.most_machines,
        "nproc_per_node": job.processes,
        "run_id": job.job_id,
        "role": "trainer",
        "rdzv_backend": "c10d",
        "rdzv_endpoint": job.master or "localhost:0",
        "rdzv_configs": dict(job.rendezvous),
        "max_restarts": job.max_restarts,
        "monitor_interval": 0.1,
        "local_addr": job.address or (None if job.master else "127.0.0.1"),
        "logs_specs": log_specs(folder, shows),
        "log_line_prefix_template": "[${rank}] ",
        "shutdown_timeout": SECONDS_TO_END,
    }
    field_names = {field.name for field in fields(elastic.LaunchConfig)}
    return elastic.LaunchConfig(**{name: wanted[name] for name in wanted if name in field_names})


def _worker_arguments(job: LaunchJob) -> list[str]:
    """The command line of `fleet.launch.worker`."""
    flags = [
        f"--parent={os.getpid()}",
        f"--gpus={','.join(job.gpus)}",
        *["--force"] * job.force,
        *["--cpu"] * job.cpu,
    ]
    flags += [] if job.started_port is None else [f"--started-port={job.started_port}"]
    return [*flags, "--", str(job.script), *job.arguments]


def report(rank: int, failure: Any, script: Path) -> int:
    """Print the first failure of a job, its traceback last; returns the job's exit code."""
    where = f"rank {rank} (local rank {failure.local_rank}, pid {failure.pid})"
    text, code = failure_text(where, failure, script)
    print(f"\nfluid launch: {text}", file=sys.stderr)
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
