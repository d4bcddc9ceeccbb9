"""`fluid launch_ps`: starts the servers and the workers of a job with parameter servers.

Processes are started, watched and stopped by torch.distributed.elastic. One that fails stops all on
its machine; when the workers have succeeded, the servers exit too.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any

from compiler.support.settings.setting import export
from fleet.launch.local_processes import (
    POLL_SECONDS,
    SECONDS_TO_END,
    LocalProcesses,
    worker_arguments,
)
from fleet.launch.server_arguments import (
    DESCRIPTION,
    EXAMPLES,
    ServerLaunch,
    add_server_arguments,
    server_job,
)
from fleet.launch.variables import PADDLE_VARIABLES, listener
from runtime.collective.engine import distributed

__all__ = ["main", "parse", "run_server_job"]

JOB_VARIABLES = (
    "PADDLE_PSERVERS_IP_PORT_LIST PADDLE_PORT POD_IP PADDLE_PSERVER_ID http_proxy https_proxy"
).split()
"""Variables of an enclosing job, and proxies, which processes must not inherit."""
SECONDS_AFTER_WORKERS = 10
"""Seconds that servers have to exit by themselves."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m fleet.launch.servers`; return its exit code."""
    command = _parser()
    options = command.parse_args(arguments)
    try:
        return run_server_job(server_job(options))
    except ValueError as error:
        command.error(str(error))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags of a command line, by default of this process's."""
    return _parser().parse_args(arguments)


def _parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        "fleet.launch.servers", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=DESCRIPTION, epilog=EXAMPLES,
    )  # fmt: skip
    add_server_arguments(command)
    return command


def run_server_job(job: ServerLaunch) -> int:
    """Run a job to its end; return 0, or the exit code of the process that failed first.

    A process killed by a signal counts as 128 + its number, as in a shell. After a job without
    failures, the last line on stderr is that of release 1.8's launcher, which scripts look for.
    Raises CollectiveError without torch.
    """
    distributed()
    export(dict.fromkeys([*PADDLE_VARIABLES, *JOB_VARIABLES]))
    free = _free_endpoints(job.workers + 1)
    trainers = job.trainers or tuple(free[1:])
    job = replace(job, meeting=job.meeting or free[0], trainers=trainers)
    processes = _processes(job)
    ended = import_module("torch.distributed.elastic.multiprocessing.api").SignalException
    context = processes.start()
    try:
        code = _watch(processes, context, job)
    except ended as stopped:
        print(f"fluid launch_ps: stopped by {stopped.sigval.name}; all ended", file=sys.stderr)
        return 128 + int(stopped.sigval)
    finally:
        context.close(signal.SIGTERM, SECONDS_TO_END)
    if code == 0:
        print("all parameter server are killed", file=sys.stderr)
    return code


def _free_endpoints(count: int) -> list[str]:
    """Distinct unused endpoints of this machine."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(listener("127.0.0.1")) for _ in range(count)]
        return [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]


def _processes(job: ServerLaunch) -> LocalProcesses:
    """The processes of a job, servers first."""
    command = _worker_arguments(job)
    return LocalProcesses(
        "launch_ps", job.script, command, job.variables(), job.names, job.log_dir, {_shown(job)}
    )


def _worker_arguments(job: ServerLaunch) -> list[str]:
    """The command line of `fleet.launch.worker`."""
    return worker_arguments(job.script, job.arguments, [], job.force, job.cpu)


def _shown(job: ServerLaunch) -> int:
    """The process whose lines are printed here: the first worker, or the last server."""
    return min(len(job.own_servers), len(job.names) - 1)


def _watch(processes: LocalProcesses, context: Any, job: ServerLaunch) -> int:
    """Wait until a process fails or the workers have ended, and servers after them.

    Servers with workers on other machines exit by themselves, when all have completed.
    """
    patience = SECONDS_AFTER_WORKERS
    while patience > 0:
        code = processes.exit_code(context, POLL_SECONDS)
        if code is not None:
            return code
        if _workers_ended(context, job):
            patience -= POLL_SECONDS
    return 0


def _workers_ended(context: Any, job: ServerLaunch) -> bool:
    """Whether all workers of the job ran here and have succeeded."""
    handlers = list(context.subprocess_handlers.values())[len(job.own_servers) :]
    return len(handlers) == job.workers and all(handler.proc.poll() == 0 for handler in handlers)


if __name__ == "__main__":
    sys.exit(main())
