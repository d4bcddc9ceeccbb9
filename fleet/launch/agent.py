"""Runs a job with torch's elastic agent: rendezvous, restarts, shutdown.

No process is supervised here. This module adds names of logs, the first failure's exit code and
traceback, and a setting without which a restarted job would connect to the addresses of the dead
one.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compiler.support.dataclass import dataclass
from compiler.support.settings.paddle import CPU_NUM
from compiler.support.settings.setting import export
from compiler.support.settings.systems import (
    TORCH_CPP_LOG_LEVEL,
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE,
)
from fleet.launch.cluster import Cluster
from fleet.launch.local_processes import (
    SECONDS_TO_END,
    LocalProcesses,
    failure_text,
    worker_arguments,
)
from fleet.launch.logs import log_specs
from fleet.launch.meeting import LIMIT, LauncherMeeting, meet, say
from fleet.launch.variables import PADDLE_VARIABLES
from runtime.collective.engine import distributed
from runtime.errors import RendezvousError


@dataclass(frozen=True)
class LaunchJob:
    """A script to run in `processes` processes on each of several machines.

    `gpus` are those of this machine, none on CPUs; `started_port` is the first process's port, None
    for free ones; `master` is `host:port` of the rendezvous, "" for one machine; `machines` are the
    addresses of all, if they are known, and `address` is this one's, None to look it up;
    `rendezvous` has settings of torch's by name; `log_dir` is None to print everything here.
    With a `cluster`, all endpoints are known and there is no rendezvous: the processes of its
    machine number `machine` start at once.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    processes: int = 1
    gpus: tuple[str, ...] = ()
    started_port: int | None = None
    least_machines: int = 1
    most_machines: int = 1
    master: str = ""
    machines: tuple[str, ...] = ()
    address: str | None = None
    max_restarts: int = 0
    log_dir: Path | None = None
    job_id: str = "fluid"
    force: bool = False
    cpu: bool = False
    rendezvous: tuple[tuple[str, str], ...] = ()
    cluster: Cluster | None = None
    machine: int = 0


def run_job(job: LaunchJob) -> int:
    """Run a job to its end; return 0, or the exit code of the process that failed first.

    A process killed by a signal counts as 128 + its number, as in a shell; a job whose machines do
    not meet as 1. The first failure is reported last, with its traceback. Raises CollectiveError
    without torch.
    """
    if not TORCH_CPP_LOG_LEVEL.is_set():
        export({TORCH_CPP_LOG_LEVEL.name: "ERROR"})  # connections end with their machine
    distributed()
    export({TORCH_DISABLE_SHARE_RDZV_TCP_STORE.name: "1"})
    export(dict.fromkeys(PADDLE_VARIABLES))  # those of a job around this one
    if job.log_dir is not None:
        return _run(job, job.log_dir, {0})
    with TemporaryDirectory(prefix="fluid-launch-") as folder:
        return _run(job, Path(folder), None)


def meeting_of(job: LaunchJob) -> LauncherMeeting:
    """How the machines of a job meet."""
    limit = dict(job.rendezvous).get("join_timeout")
    return LauncherMeeting(
        job.master, job.least_machines, job.most_machines, job.machines, job.address or "",
        LIMIT if limit is None else float(limit), job.job_id,
    )  # fmt: skip


def _run(job: LaunchJob, folder: Path, shows: set[int] | None) -> int:
    if job.cluster is not None:
        return _run_at_once(job, job.cluster, folder, shows)
    elastic = import_module("torch.distributed.launcher.api")
    errors = import_module("torch.distributed.elastic.multiprocessing.errors")
    ended = import_module("torch.distributed.elastic.multiprocessing.api").SignalException
    try:
        with meet(meeting_of(job)) if job.master else nullcontext(_nothing) as have_met:
            config = _config(elastic, job, folder, shows, have_met)
            launch = elastic.elastic_launch(config, sys.executable)
            launch("-m", "fleet.launch.worker", *_worker_arguments(job))
    except RendezvousError as error:
        say(str(error))
        return 1
    except errors.ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        return report(rank, failure, job.script)
    except ended as stopped:
        return _stopped(stopped.sigval)
    return 0


def _run_at_once(job: LaunchJob, cluster: Cluster, folder: Path, shows: set[int] | None) -> int:
    """Run the processes of this machine, whose endpoints are known, to their end."""
    ended = import_module("torch.distributed.elastic.multiprocessing.api").SignalException
    variables = dict(enumerate(_variables(cluster, job.machine)))
    processes = LocalProcesses(
        "launch", job.script, worker_arguments(job.script, job.arguments, [], job.force, job.cpu),
        variables, {n: f"workerlog.{own['PADDLE_TRAINER_ID']}" for n, own in variables.items()},
        folder, shows,
    )  # fmt: skip
    context = processes.start()
    try:
        while (code := processes.exit_code(context)) is None:
            pass
    except ended as stopped:
        return _stopped(stopped.sigval)
    finally:
        context.close(signal.SIGTERM, SECONDS_TO_END)
    return code


def _stopped(by: signal.Signals) -> int:
    """Say that a signal ended the job; returns the exit code."""
    print(f"fluid launch: stopped by {by.name}; all ended", file=sys.stderr)
    return 128 + int(by)


def _variables(cluster: Cluster, machine: int) -> list[dict[str, str]]:
    """The environment variables of each process of a machine."""
    endpoints = cluster.trainers_endpoints()
    common = {
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "TRAINING_ROLE": "TRAINER",
        "PYTHONUNBUFFERED": "1",
    } | ({} if CPU_NUM.is_set() else {CPU_NUM.name: "1"})
    return [
        {
            **common,
            "PADDLE_TRAINER_ID": str(trainer.rank),
            "PADDLE_CURRENT_ENDPOINT": trainer.endpoint,
            **({"FLAGS_selected_gpus": ",".join(map(str, trainer.gpus))} if trainer.gpus else {}),
        }
        for trainer in cluster.pods[machine].trainers
    ]


def _nothing() -> None:
    """Do nothing when the machines of a job have met: there is one."""


def _config(
    elastic: Any, job: LaunchJob, folder: Path, shows: set[int] | None, starts: Callable[[], None]
) -> Any:
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
        "logs_specs": log_specs(folder, shows, starts=starts),
        "log_line_prefix_template": "[${rank}] ",
        "shutdown_timeout": SECONDS_TO_END,
    }
    field_names = {field.name for field in fields(elastic.LaunchConfig)}
    return elastic.LaunchConfig(**{name: wanted[name] for name in wanted if name in field_names})


def _worker_arguments(job: LaunchJob) -> list[str]:
    """The command line of `fleet.launch.worker`."""
    options = [f"--gpus={','.join(job.gpus)}"]
    options += [] if job.started_port is None else [f"--started-port={job.started_port}"]
    return worker_arguments(job.script, job.arguments, options, job.force, job.cpu)


def report(rank: int, failure: Any, script: Path) -> int:
    """Print the first failure of a job, its traceback last; returns the job's exit code."""
    where = f"rank {rank} (local rank {failure.local_rank}, pid {failure.pid})"
    text, code = failure_text(where, failure, script)
    print(f"\nfluid launch: {text}", file=sys.stderr)
    return code
