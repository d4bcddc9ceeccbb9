"""`fluid launch_ps`: starts the servers and the workers of a job with parameter servers.

Processes are started, watched and ended by torch.distributed.elastic. One that fails ends all; when
the workers have ended well, the servers end too.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from fleet.launch.agent import SECONDS_TO_END, failure_text
from fleet.launch.logs import log_specs
from fleet.launch.variables import PADDLE_VARIABLES, listener
from fleet.roles.variables import is_endpoint

__all__ = ["ServerJob", "add_server_arguments", "main", "run_server_job", "server_job"]

DESCRIPTION = """\
Start a script as the servers and the workers of a job with parameter servers, on this machine, with
the environment variables that fleet.init reads. If a process fails, all are ended; the exit code is
that of the first that failed, and its traceback is printed last. When all workers have ended, the
servers are ended too. Inside, `import paddle.fluid` works as under `fluid run`.
"""
EXAMPLES = """\
examples:
  fluid launch_ps --worker_num 2 --server_num 2 train.py --epochs 5
  fluid launch_ps --endpoints 127.0.0.1:6170,127.0.0.1:6171 --log_dir logs train.py
                                   logs/serverlog.0, …, logs/workerlog.0, …
"""
JOB_VARIABLES = (
    "PADDLE_PSERVERS_IP_PORT_LIST PADDLE_PORT POD_IP PADDLE_PSERVER_ID http_proxy https_proxy"
).split()
"""Variables of a job around this one, and proxies, which processes must not inherit."""
SECONDS_AFTER_WORKERS = 10
"""How long servers may take to end by themselves."""
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class ServerJob:
    """A script to run as servers, one for each endpoint, and as `workers` workers.

    `log_dir` has a log for each process; worker 0's lines are shown here too. All processes meet at
    `meeting`, a free port unless given.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    workers: int = 2
    log_dir: Path = field(default_factory=lambda: Path("logs"))
    meeting: str = ""
    force: bool = False

    @property
    def names(self) -> dict[int, str]:
        """The log of each process, servers first: `serverlog.0`, …, `workerlog.0`, …."""
        servers = [f"serverlog.{number}" for number in range(len(self.endpoints))]
        workers = [f"workerlog.{number}" for number in range(self.workers)]
        return dict(enumerate(servers + workers))

    def variables(self) -> dict[int, dict[str, str]]:
        """The environment variables of each process, servers first."""
        common = {
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.endpoints),
            "PADDLE_TRAINERS_NUM": str(self.workers),
            "PADDLE_GLOO_ENDPOINT": self.meeting,
            "PYTHONUNBUFFERED": "1",
        }
        roles = [_server_variables(*each) for each in enumerate(self.endpoints)]
        roles += [_worker_variables(number) for number in range(self.workers)]
        return dict(enumerate({**common, **role} for role in roles))


def _server_variables(number: int, endpoint: str) -> dict[str, str]:
    host, _, port = endpoint.rpartition(":")
    own = {"POD_IP": host, "PADDLE_PORT": port, "PADDLE_PSERVER_ID": str(number)}
    return {"TRAINING_ROLE": "PSERVER", **own}


def _worker_variables(number: int) -> dict[str, str]:
    return {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(number)}


# ---- the command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m fleet.launch.servers`; its exit code."""
    command = argparse.ArgumentParser(
        "fleet.launch.servers", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=DESCRIPTION, epilog=EXAMPLES,
    )  # fmt: skip
    add_server_arguments(command)
    given = command.parse_args(arguments)
    try:
        return run_server_job(server_job(given))
    except ValueError as error:
        command.error(str(error))


def add_server_arguments(command: Any) -> None:
    """Add the flags and the script to a parser of the command line."""
    add = command.add_argument
    add("--worker_num", type=int, default=2, metavar="N", help="workers (%(default)s)")
    add("--server_num", type=int, default=2, metavar="N", help="servers (%(default)s)")
    add("--start_port", type=int, default=6170, metavar="PORT",
        help="servers listen at this port and those after it (%(default)s)")  # fmt: skip
    add("--endpoints", default="", metavar="HOST:PORT,…",
        help="where servers listen, one for each, in place of --start_port")  # fmt: skip
    add("--cluster_node_ips", default="127.0.0.1", metavar="IP", help="this machine (%(default)s)")
    add("--node_ip", default="127.0.0.1", metavar="IP",
        help="the address servers of --start_port listen at (%(default)s)")  # fmt: skip
    add("--log_dir", type=Path, default=Path("logs"), metavar="DIR",
        help="write serverlog.N and workerlog.N there (%(default)s)")  # fmt: skip
    add("--print_config", default="True", metavar="BOOL", help="accepted, without effect")
    add("--force", action="store_true", help="even if another paddle is installed")
    add("script", type=Path, metavar="SCRIPT", help="a Python file")
    add("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")


def server_job(given: argparse.Namespace) -> ServerJob:
    """The job that parsed flags ask for. Raises ValueError for flags that do not go together."""
    if not given.script.is_file():
        raise ValueError(f"{given.script} is no file: name a script, and after it its arguments")
    if given.worker_num < 1:
        raise ValueError(f"--worker_num is {given.worker_num}, expected 1 or more")
    _expect_one_machine(given.cluster_node_ips, given.node_ip)
    return ServerJob(
        script=given.script,
        arguments=tuple(given.arguments),
        endpoints=_endpoints(given),
        workers=given.worker_num,
        log_dir=given.log_dir,
        meeting=os.environ.get("PADDLE_GLOO_ENDPOINT", ""),
        force=given.force,
    )


def _endpoints(given: argparse.Namespace) -> tuple[str, ...]:
    if given.endpoints:
        found = tuple(each.strip() for each in given.endpoints.split(","))
        wrong = [each for each in found if not is_endpoint(each)]
        if wrong or len(set(found)) != len(found):
            raise ValueError(f"--endpoints is {given.endpoints!r}, expected different host:port")
        return found
    first, count = given.start_port, given.server_num
    if count < 1 or not 0 < first <= 65536 - count:
        raise ValueError(f"--start_port {first} and --server_num {count}: expected ports to 65535")
    return tuple(f"{given.node_ip}:{port}" for port in range(first, first + count))


def _expect_one_machine(cluster: str, own: str) -> None:
    if [each.strip() for each in cluster.split(",")] not in ([own], ["127.0.0.1"]):
        raise ValueError(
            f"--cluster_node_ips is {cluster}: all processes run on this machine; on several, set "
            "the variables of each process (docs/fleet.md) and run the script by `fluid run`"
        )


# ---- the processes


def run_server_job(job: ServerJob) -> int:
    """Run a job to its end; 0, or the exit code of the process that failed first.

    A process that a signal ended counts as 128 + its number, as in a shell.
    """
    for name in (*PADDLE_VARIABLES, *JOB_VARIABLES):
        os.environ.pop(name, None)
    if not job.meeting:
        job = ServerJob(**{**vars(job), "meeting": _free_endpoint()})
    processes = import_module("torch.distributed.elastic.multiprocessing")
    ended = import_module("torch.distributed.elastic.multiprocessing.api").SignalException
    context = _started(processes, job)
    try:
        return _watch(context, job)
    except ended as stopped:
        print(f"fluid launch_ps: stopped by {stopped.sigval.name}; all ended", file=sys.stderr)
        return 128 + int(stopped.sigval)
    finally:
        context.close(signal.SIGTERM, SECONDS_TO_END)


def _free_endpoint() -> str:
    with listener("127.0.0.1") as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


def _started(processes: Any, job: ServerJob) -> Any:
    """The running processes of a job, servers first."""
    variables = job.variables()
    flags = ["--force"] if job.force else []
    command = ("-u", "-m", "fleet.launch.worker", *flags, "--", str(job.script), *job.arguments)
    return processes.start_processes(
        name="launch_ps",
        entrypoint=sys.executable,
        args=dict.fromkeys(variables, command),
        envs=variables,
        logs_specs=log_specs(job.log_dir, {len(job.endpoints)}, job.names),
        log_line_prefixes={each: f"[{name}] " for each, name in job.names.items()},
    )


def _watch(context: Any, job: ServerJob) -> int:
    """Wait until a process fails or the workers have ended, and servers after them."""
    patience = SECONDS_AFTER_WORKERS
    while patience > 0:
        result = context.wait(POLL_SECONDS, POLL_SECONDS)
        if result is not None:
            return _report(result, job) if result.is_failed() else 0
        if _workers_ended(context, job):
            patience -= POLL_SECONDS
    return 0


def _workers_ended(context: Any, job: ServerJob) -> bool:
    handlers = list(context.subprocess_handlers.values())[len(job.endpoints) :]
    return all(each.proc.poll() == 0 for each in handlers)


def _report(result: Any, job: ServerJob) -> int:
    """Print the first failure of a job; returns the job's exit code."""
    first = min(result.failures.values(), key=lambda failure: failure.timestamp)
    name = job.names[first.local_rank].replace("log.", " ")
    text, code = failure_text(f"{name} (pid {first.pid})", first, job.script)
    print(f"\nfluid launch_ps: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
