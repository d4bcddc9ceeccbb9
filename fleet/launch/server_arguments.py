"""The command line of `fluid launch_ps`, and the job that it describes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path
from typing import Any

from compiler.support.dataclass import dataclass
from compiler.support.settings.paddle import PADDLE_GLOO_ENDPOINT
from compiler.support.settings.setting import is_endpoint

__all__ = ["DESCRIPTION", "EXAMPLES", "ServerLaunch", "add_server_arguments", "server_job"]

DESCRIPTION = """\
Start a script as the servers and the workers of a job with parameter servers, with the environment
variables that fleet.init reads. If a process fails, all of this machine are ended; the exit code is
that of the first that failed, and its traceback is printed last. When all workers have ended, the
servers are ended too. Inside, `import paddle.fluid` works as under `fluid run`.
"""
EXAMPLES = """\
examples:
  fluid launch_ps --worker_num 2 --server_num 2 train.py --epochs 5
  fluid launch_ps --endpoints 127.0.0.1:6170,127.0.0.1:6171 --log_dir logs train.py
                                   logs/serverlog.0, …, logs/workerlog.0, …
  fluid launch_ps --cluster_node_ips 10.0.0.1,10.0.0.2 --node_ip 10.0.0.1 train.py
                                   two servers and two workers on each of two machines; the same
                                   on 10.0.0.2 with its own --node_ip
  fluid launch_ps --servers 10.0.0.1:6170 --workers 10.0.0.1:6171,10.0.0.2:6170 \\
                  --node_ip 10.0.0.1 train.py
                                   each machine starts the processes with its address
"""


@dataclass(frozen=True)
class ServerLaunch:
    """A script to run as servers, one for each of `endpoints`, and as `workers` workers.

    `trainers` are the workers' endpoints, by default free ports of this machine. With `host`, only
    the processes with endpoints on that host run here, the others on other machines. `log_dir` has
    a log for each process; the first worker's lines are also printed here. All processes meet at
    `meeting`, by default a free port.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    workers: int = 2
    trainers: tuple[str, ...] = ()
    host: str = ""
    log_dir: Path = field(default_factory=lambda: Path("logs"))
    meeting: str = ""
    force: bool = False
    cpu: bool = False

    @property
    def own_servers(self) -> list[int]:
        """The numbers of the servers that run here."""
        return [n for n, endpoint in enumerate(self.endpoints) if self._is_here(endpoint)]

    @property
    def own_workers(self) -> list[int]:
        """The numbers of the workers that run here."""
        here = [n for n, endpoint in enumerate(self.trainers) if self._is_here(endpoint)]
        return here if self.host else list(range(self.workers))

    def _is_here(self, endpoint: str) -> bool:
        return self.host in ("", endpoint.rpartition(":")[0])

    @property
    def names(self) -> dict[int, str]:
        """The log of each process here, servers first: `serverlog.0`, …, `workerlog.0`, …."""
        servers = [f"serverlog.{number}" for number in self.own_servers]
        workers = [f"workerlog.{number}" for number in self.own_workers]
        return dict(enumerate(servers + workers))

    def variables(self) -> dict[int, dict[str, str]]:
        """The environment variables of each process here, servers first."""
        common = {
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.endpoints),
            "PADDLE_TRAINERS_NUM": str(self.workers),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(self.trainers),
            "PADDLE_GLOO_ENDPOINT": self.meeting,
            "PYTHONUNBUFFERED": "1",
        }
        roles = [_server_variables(number, self.endpoints[number]) for number in self.own_servers]
        roles += [_worker_variables(number, self.trainers[number]) for number in self.own_workers]
        return dict(enumerate({**common, **role} for role in roles))


def _server_variables(number: int, endpoint: str) -> dict[str, str]:
    host, _, port = endpoint.rpartition(":")
    own = {"POD_IP": host, "PADDLE_PORT": port, "PADDLE_PSERVER_ID": str(number)}
    return {"TRAINING_ROLE": "PSERVER", **own}


def _worker_variables(number: int, endpoint: str) -> dict[str, str]:
    own = {"PADDLE_TRAINER_ID": str(number), "PADDLE_CURRENT_ENDPOINT": endpoint}
    return {"TRAINING_ROLE": "TRAINER", **own}


def add_server_arguments(command: Any) -> None:
    """Add the flags and the script to a parser of the command line."""
    add = command.add_argument
    add("--worker_num", type=int, default=2, metavar="N", help="workers a machine (%(default)s)")
    add("--server_num", type=int, default=2, metavar="N", help="servers a machine (%(default)s)")
    add("--start_port", type=int, default=6170, metavar="PORT",
        help="servers listen at this port and those after it (%(default)s)")  # fmt: skip
    add("--endpoints", default="", metavar="HOST:PORT,…",
        help="where servers listen, one for each, in place of --start_port")  # fmt: skip
    add("--log_dir", type=Path, default=Path("logs"), metavar="DIR",
        help="write serverlog.N and workerlog.N there (%(default)s)")  # fmt: skip
    add("--print_config", default="True", metavar="BOOL", help="accepted, without effect")
    add("--force", action="store_true", help="even if another paddle is installed")
    add("--cpu", action="store_true", help="CUDAPlace is CPUPlace: for scripts that want a GPU")
    _add_machines(command.add_argument_group("several machines"))
    add("script", type=Path, metavar="SCRIPT", help="a Python file")
    add("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script")


def _add_machines(group: Any) -> None:
    add = group.add_argument
    add("--cluster_node_ips", default="127.0.0.1", metavar="IP,IP",
        help="all machines; each has --server_num servers, at --start_port and the ports after it, "
        "and --worker_num workers behind them (%(default)s)")  # fmt: skip
    add("--node_ip", default="127.0.0.1", metavar="IP",
        help="this machine's address among them (%(default)s)")  # fmt: skip
    add("--servers", default="", metavar="HOST:PORT,…", help="all servers, with --workers")
    add("--workers", default="", metavar="HOST:PORT,…",
        help="all workers, with --servers; the first port is that of the rendezvous")  # fmt: skip


def server_job(given: argparse.Namespace) -> ServerLaunch:
    """The job of parsed flags. Raises ValueError for incompatible flags."""
    if not given.script.is_file():
        raise ValueError(f"{given.script} is no file: name a script, and after it its arguments")
    if given.worker_num < 1:
        raise ValueError(f"--worker_num is {given.worker_num}, expected 1 or more")
    cluster = [host.strip() for host in given.cluster_node_ips.split(",")]
    several = bool(given.servers or given.workers) or len(cluster) > 1
    servers, workers = _on_several(given, cluster) if several else (_endpoints(given), ())
    meeting = PADDLE_GLOO_ENDPOINT.read_or("".join(workers[:1]))
    return ServerLaunch(
        script=given.script,
        arguments=tuple(given.arguments),
        endpoints=servers,
        workers=len(workers) or given.worker_num,
        trainers=workers,
        host=given.node_ip if several else "",
        log_dir=given.log_dir,
        meeting=meeting,
        force=given.force,
        cpu=given.cpu,
    )


def _on_several(
    given: argparse.Namespace, cluster: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The endpoints of the servers and of the workers of a job on several machines."""
    if given.servers or given.workers:
        endpoints = _listed(given.servers, "--servers"), _listed(given.workers, "--workers")
    else:
        endpoints = _numbered(given, cluster)
    if len(set(endpoints[0] + endpoints[1])) != len(endpoints[0] + endpoints[1]):
        raise ValueError("an endpoint is that of a server and of a worker: expected different ones")
    hosts = {endpoint.rpartition(":")[0] for side in endpoints for endpoint in side}
    if given.node_ip not in hosts:
        raise ValueError(
            f"--node_ip is {given.node_ip!r}, expected one of {', '.join(sorted(hosts))}"
        )
    return endpoints


def _numbered(
    given: argparse.Namespace, cluster: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Endpoints of machines with equal numbers of servers and workers."""
    first, count = given.start_port, given.server_num
    servers = _ports(cluster, first, count, "--server_num")
    return servers, _ports(cluster, first + count, given.worker_num, "--worker_num")


def _ports(hosts: Iterable[str], first: int, count: int, flag: str) -> tuple[str, ...]:
    """`count` endpoints of each host, at ports starting with `first`. Raises ValueError."""
    if count < 1 or not 0 < first <= 65536 - count:
        raise ValueError(f"--start_port {first} and {flag} {count}: expected ports to 65535")
    return tuple(f"{host}:{port}" for host in hosts for port in range(first, first + count))


def _endpoints(given: argparse.Namespace) -> tuple[str, ...]:
    if given.endpoints:
        return _listed(given.endpoints, "--endpoints")
    return _ports([given.node_ip], given.start_port, given.server_num, "--server_num")


def _listed(text: str, flag: str) -> tuple[str, ...]:
    """The endpoints of a flag. Raises ValueError."""
    endpoints = tuple(endpoint.strip() for endpoint in text.split(","))
    if not all(map(is_endpoint, endpoints)) or len(set(endpoints)) != len(endpoints):
        raise ValueError(f"{flag} is {text!r}, expected different host:port")
    return endpoints
