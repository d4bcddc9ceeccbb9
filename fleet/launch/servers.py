"""`fluid launch_ps`: starts the servers and the workers of a job with parameter servers.

Processes are started, watched and stopped by torch.distributed.elastic. One that fails stops all on
its machine; when the workers have succeeded, the servers exit too.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any

from compiler.support.settings.setting import export
from fleet.launch.agent import SECONDS_TO_END, failure_text
from fleet.launch.logs import log_specs
from fleet.launch.server_arguments import (
    DESCRIPTION,
    EXAMPLES,
    ServerLaunch,
    add_server_arguments,
    server_job,
)
from fleet.launch.variables import PADDLE_VARIABLES, listener
from runtime.collective.engine import distributed

__all__ = ["main", "run_server_job"]

JOB_VARIABLES = (
    "PADDLE_PSERVERS_IP_PORT_LIST PADDLE_PORT POD_IP PADDLE_PSERVER_ID http_proxy https_proxy"
).split()
"""Variables of an enclosing job, and proxies, which processes must not inherit."""
SECONDS_AFTER_WORKERS = 10
"""Seconds that servers have to exit by themselves."""
POLL_SECONDS = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m fleet.launch.servers`; return its exit code."""
    command = argparse.ArgumentParser(
        "fleet.launch.servers", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=DESCRIPTION, epilog=EXAMPLES,
    )  # fmt: skip
    add_server_arguments(command)
    options = command.parse_args(arguments)
    try:
        return run_server_job(server_job(options))
    except ValueError as error:
        command.error(str(error))


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
    processes = import_module("torch.distributed.elastic.multiprocessing")
    ended = import_module("torch.distributed.elastic.multiprocessing.api").SignalException
    context = _started(processes, job)
    try:
        code = _watch(context, job)
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


def _started(processes: Any, job: ServerLaunch) -> Any:
    """Start the processes of a job, servers first."""
    variables = job.variables()
    command = ("-u", "-m", "fleet.launch.worker", *_worker_arguments(job))
    return processes.start_processes(
        name="launch_ps",
        entrypoint=sys.executable,
        args=dict.fromkeys(variables, command),
        envs=variables,
        logs_specs=log_specs(job.log_dir, {_shown(job)}, job.names),
        log_line_prefixes={rank: f"[{name}] " for rank, name in job.names.items()},
    )


def _worker_arguments(job: ServerLaunch) -> list[str]:
    """The command line of `fleet.launch.worker`."""
    flags = [f"--parent={os.getpid()}", *["--force"] * job.force, *["--cpu"] * job.cpu]
    return [*flags, "--", str(job.script), *job.arguments]


def _shown(job: ServerLaunch) -> int:
    """The process whose lines are printed here: the first worker, or the last server."""
    return min(len(job.own_servers), len(job.names) - 1)


def _watch(context: Any, job: ServerLaunch) -> int:
    """Wait until a process fails or the workers have ended, and servers after them.

    Servers with workers on other machines exit by themselves, when all have completed.
    """
    patience = SECONDS_AFTER_WORKERS
    while patience > 0:
        result = context.wait(POLL_SECONDS, POLL_SECONDS)
        if result is not None:
            return _report(result, job) if result.is_failed() else 0
        if _workers_ended(context, job):
            patience -= POLL_SECONDS
    return 0


def _workers_ended(context: Any, job: ServerLaunch) -> bool:
    """Whether all workers of the job ran here and have succeeded."""
    handlers = list(context.subprocess_handlers.values())[len(job.own_servers) :]
    return len(handlers) == job.workers and all(handler.proc.poll() == 0 for handler in handlers)


def _report(result: Any, job: ServerLaunch) -> int:
    """Print the first failure of a job; returns the job's exit code."""
    first = min(result.failures.values(), key=lambda failure: failure.timestamp)
    name = job.names[first.local_rank].replace("log.", " ")
    text, code = failure_text(f"{name} (pid {first.pid})", first, job.script)
    print(f"\nfluid launch_ps: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
