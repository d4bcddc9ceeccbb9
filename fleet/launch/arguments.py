"""The command line of `fluid launch`: flags of Paddle 1.8's launcher and of torchrun."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler.support.dataclass import dataclass
from compiler.support.settings.paddle import (
    CPU_NUM,
    DISTRIBUTED_TRAINER_ENDPOINTS,
    PADDLE_PORT,
    PADDLE_TRAINERS,
    PADDLE_TRAINERS_NUM,
    POD_IP,
    TRAINER_PORTS_NUM,
    FLAGS_selected_gpus,
)
from compiler.support.settings.setting import Environ
from compiler.support.settings.systems import CUDA_VISIBLE_DEVICES
from fleet.launch.agent import LaunchJob, run_job
from fleet.launch.cluster import Cluster, cluster_of, numbered_endpoints

__all__ = [
    "add_arguments",
    "cloud_machines",
    "job_of",
    "machine_endpoints",
    "main",
    "parse",
    "visible_gpus",
]

DESCRIPTION = """\
Start a script once for each device, on this machine or on several, with the environment variables
that scripts of Paddle 1.8 and of torchrun read. Processes are started, watched, restarted and ended
by torch.distributed.elastic. If one fails, all are ended; the exit code is that of the first that
failed, and its traceback is printed last. Inside, `import paddle.fluid` works as under `fluid run`.
"""
EXAMPLES = """\
examples:
  fluid launch --nproc_per_node 2 train.py --epochs 5        two processes on this machine
  fluid launch --selected_gpus 0,1,2,3 train.py              one process for each of four GPUs
  fluid launch --cluster_node_ips 10.0.0.1,10.0.0.2 --node_ip 10.0.0.1 train.py
                                        the same on 10.0.0.2 with its own --node_ip
  fluid launch --nnodes 1:4 --master 10.0.0.1:29400 --max_restarts 3 train.py
                                        one to four machines may take part, and may come and go
  fluid launch --nproc_per_node 2 --log_dir logs train.py    logs/workerlog.0, logs/workerlog.1
"""
MASTER_PORT = 29400
"""The rendezvous port of a job on several machines, unless --master names another."""
STARTED_PORT = 6070
"""The first port of each machine's processes, unless --started_port is another."""
CLOUD_PORT = 6170
"""The first port of PaddleCloud's processes, unless PADDLE_PORT or --started_port is another."""
LOCAL = "127.0.0.1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m fleet.launch`; return its exit code."""
    command = _parser()
    options = command.parse_args(arguments)
    try:
        return run_job(job_of(options))
    except ValueError as error:
        command.error(str(error))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags of a command line, by default of this process's."""
    return _parser().parse_args(arguments)


def _parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        "fleet.launch", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=DESCRIPTION, epilog=EXAMPLES,
    )  # fmt: skip
    add_arguments(command)
    return command


def add_arguments(command: Any) -> None:
    """Add the flags and the script to a parser of the command line."""
    node = command.add_argument_group("processes of this machine")
    node.add_argument(
        "--nproc_per_node", type=int, metavar="N",
        help="processes to start (as many as --selected_gpus, else CPU_NUM, else 1)",
    )  # fmt: skip
    node.add_argument("--selected_gpus", metavar="0,1", help="GPUs, one for each process")
    node.add_argument(
        "--started_port", type=int, metavar="PORT",
        help="the processes' endpoints are at this port and those after it (free ports; on several "
        f"machines {STARTED_PORT})",
    )  # fmt: skip
    _add_machines(command.add_argument_group("several machines"))
    logs = command.add_argument_group("failures and logs")
    logs.add_argument(
        "--max_restarts", type=int, default=0, metavar="N",
        help="start all processes again after a failure, N times at most (%(default)s)",
    )  # fmt: skip
    logs.add_argument(
        "--log_dir", type=Path, metavar="DIR",
        help="write workerlog.RANK for each process there, and show only rank 0 here",
    )  # fmt: skip
    for name in ("--print_config", "--log_level"):
        logs.add_argument(name, metavar="X", help="accepted, without effect")
    logs.add_argument("--force", action="store_true", help="even if another paddle is installed")
    command.add_argument(
        "--cpu", action="store_true", help="CUDAPlace is CPUPlace: for scripts that want a GPU"
    )
    command.add_argument("script", type=Path, metavar="SCRIPT", help="a Python file")
    command.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script"
    )


def _add_machines(group: Any) -> None:
    group.add_argument(
        "--nnodes", default="1", metavar="N|MIN:MAX", help="how many take part (%(default)s)"
    )
    group.add_argument(
        "--master", metavar="HOST[:PORT]",
        help=f"where the machines meet (the first of --cluster_node_ips, port {MASTER_PORT})",
    )  # fmt: skip
    group.add_argument(
        "--cluster_node_ips", metavar="IP,IP",
        help="all machines; each starts its processes at once, unless there is --master, "
        "--max_restarts or --rdzv_conf: then they meet first",
    )  # fmt: skip
    group.add_argument("--node_ip", metavar="IP", help="this machine's address among them")
    group.add_argument(
        "--use_paddlecloud", action="store_true",
        help="the machines are those of PADDLE_TRAINERS, POD_IP and PADDLE_PORT or "
        "DISTRIBUTED_TRAINER_ENDPOINTS, where PADDLE_TRAINERS_NUM is 2 or more",
    )  # fmt: skip
    group.add_argument(
        "--rdzv_conf", default="", metavar="NAME=VALUE,...",
        help="settings of torch's rendezvous, such as last_call_timeout=5 (seconds)",
    )  # fmt: skip
    group.add_argument("--job_id", default="fluid", metavar="NAME", help="tells jobs apart")


@dataclass(frozen=True)
class _Machines:
    """The minimum and maximum number of machines, and their rendezvous."""

    least: int
    most: int
    master: str


def job_of(given: argparse.Namespace, environ: Environ = None) -> LaunchJob:
    """The job of parsed flags. Raises ValueError for incompatible flags."""
    if not given.script.is_file():
        raise ValueError(f"{given.script} is no file: name a script, and after it its arguments")
    gpus = _gpus(given.selected_gpus, environ)
    processes = _processes(given.nproc_per_node, gpus, environ)
    is_cloud = given.use_paddlecloud and PADDLE_TRAINERS_NUM.read(environ) > 1
    if is_cloud:
        cloud = cloud_machines(processes, given.started_port, environ)
        own = {"node_ip": cloud.own, "started_port": cloud.port}
        own["cluster_node_ips"] = ",".join(cloud.addresses)
        given = argparse.Namespace(**{**vars(given), **own})
    machines = _machines(given)
    addresses = _listed(given.cluster_node_ips or "")
    return LaunchJob(
        script=given.script,
        arguments=tuple(given.arguments),
        processes=processes,
        gpus=tuple(gpus),
        started_port=given.started_port,
        least_machines=machines.least,
        most_machines=machines.most,
        master=machines.master,
        machines=tuple(addresses),
        address=given.node_ip,
        max_restarts=given.max_restarts,
        log_dir=given.log_dir,
        job_id=given.job_id,
        force=given.force,
        cpu=given.cpu,
        rendezvous=_settings(given.rdzv_conf),
        cluster=_cluster(given, addresses, processes, gpus, environ if is_cloud else {}),
        machine=addresses.index(given.node_ip or LOCAL) if addresses else 0,
    )


def _cluster(
    given: argparse.Namespace,
    addresses: list[str],
    processes: int,
    gpus: Sequence[str],
    environ: Environ,
) -> Cluster | None:
    """All processes of a job on several machines, or None if the machines meet to find out.

    They meet where a flag is about the meeting: --master, --max_restarts or --rdzv_conf.
    """
    meets = given.master or given.max_restarts or given.rdzv_conf
    if len(addresses) < 2 or meets:
        return None
    devices = [[gpu] for gpu in gpus[:processes]] or [[] for _ in range(processes)]
    return cluster_of(
        addresses, machine_endpoints(addresses, given.started_port, processes, environ), devices
    )


def machine_endpoints(
    addresses: Sequence[str], started_port: int | None, processes: int, environ: Environ = None
) -> list[list[str]]:
    """The endpoints of each machine of a job on several.

    DISTRIBUTED_TRAINER_ENDPOINTS has those of PaddleCloud, TRAINER_PORTS_NUM of each machine;
    otherwise they are at `started_port`, by default 6070, and the ports after it. Raises
    ValueError for another number of them.
    """
    endpoints = DISTRIBUTED_TRAINER_ENDPOINTS.read(environ)
    if not endpoints:
        return numbered_endpoints(addresses, started_port or STARTED_PORT, processes)
    each = TRAINER_PORTS_NUM.read_or(len(endpoints) // len(addresses), environ)
    if len(endpoints) != each * len(addresses):
        raise ValueError(
            f"{DISTRIBUTED_TRAINER_ENDPOINTS.name} has {len(endpoints)} endpoints, expected "
            f"{each * len(addresses)}: {each} ({TRAINER_PORTS_NUM.name}) of each of "
            f"{len(addresses)} machines"
        )
    return [list(endpoints[first : first + each]) for first in range(0, len(endpoints), each)]


def _gpus(selected: str | None, environ: Environ) -> list[str]:
    """The GPUs of this machine, as positions in CUDA_VISIBLE_DEVICES if that is set."""
    if not selected:
        return _listed(FLAGS_selected_gpus.text(environ))
    return [str(gpu) for gpu in visible_gpus(_listed(selected), environ)]


def visible_gpus(selected: Sequence[str], environ: Environ = None) -> list[str] | list[int]:
    """GPUs as positions in CUDA_VISIBLE_DEVICES, as they are if that is not set.

    Raises ValueError for one that is not in it.
    """
    visible = _listed(CUDA_VISIBLE_DEVICES.text(environ))
    if not visible:
        return list(selected)
    hidden = [gpu for gpu in selected if gpu not in visible]
    if hidden:
        raise ValueError(f"GPU {hidden[0]} is not in CUDA_VISIBLE_DEVICES={','.join(visible)}")
    return [visible.index(gpu) for gpu in selected]


@dataclass(frozen=True)
class CloudMachines:
    """The machines of PaddleCloud: the addresses of all, this one's, and the first port."""

    addresses: list[str]
    own: str
    port: int


def cloud_machines(
    processes: int, started_port: int | None, environ: Environ = None
) -> CloudMachines:
    """The machines of PaddleCloud's variables, for `processes` processes on each.

    PADDLE_PORT is the first port if TRAINER_PORTS_NUM, where that is set, suffices for them.
    Raises ValueError for a variable that is missing. Source: `cloud_utils.py` of release 1.8.5.
    """
    suffices = TRAINER_PORTS_NUM.read_or(processes, environ) >= processes
    port = (PADDLE_PORT.read(environ) if suffices else 0) or started_port or CLOUD_PORT
    addresses = _listed(PADDLE_TRAINERS.require(environ))
    return CloudMachines(addresses, POD_IP.require(environ), port)


def _settings(text: str) -> tuple[tuple[str, str], ...]:
    """Parse comma-separated `name=value` pairs. Raises ValueError if malformed."""
    pairs = [setting.partition("=") for setting in _listed(text)]
    if not all(name and equals for name, equals, _ in pairs):
        raise ValueError(f"--rdzv_conf is {text!r}, expected NAME=VALUE, with commas between")
    return tuple((name, value) for name, _, value in pairs)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _processes(asked: int | None, gpus: Sequence[str], environ: Environ) -> int:
    """The number of processes of this machine. Raises ValueError if it exceeds the GPUs named."""
    count = asked or len(gpus) or CPU_NUM.read(environ) or 1
    if count < 1 or (gpus and count > len(gpus)):
        raise ValueError(f"--nproc_per_node is {count}, expected from 1 to the {len(gpus)} GPUs")
    return count


def _machines(given: argparse.Namespace) -> _Machines:
    cluster = _listed(given.cluster_node_ips or "")
    own = given.node_ip or LOCAL
    if cluster and own not in cluster:
        raise ValueError(f"--node_ip is {own!r}, expected one of {', '.join(cluster)}")
    least, most = (len(cluster),) * 2 if cluster else _node_range(given.nnodes)
    master = given.master or (cluster[0] if len(cluster) > 1 else "")
    if most > 1 and not master:
        raise ValueError("several machines need --master HOST:PORT, the place where they meet")
    if master and ":" not in master:
        master = f"{master}:{MASTER_PORT}"
    return _Machines(least, most, master)


def _node_range(text: str) -> tuple[int, int]:
    """The minimum and maximum number of machines: `4` or `1:4`."""
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    least = int(match[1]) if match else 0
    most = int(match[2] or least) if match else 0
    if not 1 <= least <= most:
        raise ValueError(f"--nnodes is {text!r}, expected a number such as 2, or a range 1:4")
    return least, most
