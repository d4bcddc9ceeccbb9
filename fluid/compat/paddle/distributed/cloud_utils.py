"""Jobs of PaddleCloud, `paddle.distributed.cloud_utils` of release 1.8: its variables."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.support.settings.paddle import PADDLE_TRAINERS_NUM
from fleet.launch.arguments import cloud_machines, machine_endpoints
from fleet.launch.cluster import Cluster, Gpu, Pod, get_cluster

__all__ = ["get_cloud_cluster", "get_trainers_num"]


def get_cloud_cluster(
    args_node_ips: str, args_node_ip: str, args_port: int | None, selected_gpus: Sequence[Gpu]
) -> tuple[Cluster, Pod]:
    """Return the job of PaddleCloud's variables, one process a GPU, and this machine of it.

    The addresses of the command line are not used. Raises ValueError for a variable that is
    missing or does not fit.
    """
    machines = cloud_machines(len(selected_gpus), args_port)
    endpoints = machine_endpoints(machines.addresses, machines.port, len(selected_gpus))
    return get_cluster(machines.addresses, machines.own, endpoints, selected_gpus)


def get_trainers_num() -> int:
    """Return the number of machines, PADDLE_TRAINERS_NUM, or 1."""
    return PADDLE_TRAINERS_NUM.read()
