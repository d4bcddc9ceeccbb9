"""A job on several machines as its launchers know it: machines, processes and their endpoints.

Names are those of `paddle.distributed.utils` of release 1.8.5, where a machine is a pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from compiler.support.dataclass import dataclass

__all__ = ["Cluster", "Gpu", "Pod", "Trainer", "cluster_of", "get_cluster", "numbered_endpoints"]

Gpu = str | int
"""A GPU: its number, as text or as its position in CUDA_VISIBLE_DEVICES."""


@dataclass
class Trainer:
    """A process of a job: its GPUs, its `host:port` and its number among all processes."""

    gpus: list[Gpu] = field(default_factory=list[Gpu])
    endpoint: str = ""
    rank: int | None = None


@dataclass
class Pod:
    """A machine of a job: its number, its address and its processes."""

    rank: int | None = None
    id: int | str | None = None
    addr: str | None = None
    port: int | None = None
    trainers: list[Trainer] = field(default_factory=list[Trainer])
    gpus: list[Gpu] = field(default_factory=list[Gpu])

    def get_visible_gpus(self) -> str:
        """The GPUs of the machine, comma-separated. Raises ValueError if it has none."""
        if not self.gpus:
            raise ValueError(f"machine {self.addr} has no GPU: its `gpus` is empty")
        return ",".join(map(str, self.gpus))


@dataclass
class Cluster:
    """The machines of a job; `hdfs`, `job_server` and `job_stage_flag` are for the caller's use."""

    hdfs: object = None
    job_server: object = None
    pods: list[Pod] = field(default_factory=list[Pod])
    job_stage_flag: object = None

    def trainers_endpoints(self) -> list[str]:
        """The endpoints of all processes, in order of their numbers."""
        return [trainer.endpoint for pod in self.pods for trainer in pod.trainers]

    def trainers_nranks(self) -> int:
        """The number of processes."""
        return len(self.trainers_endpoints())

    def pods_nranks(self) -> int:
        """The number of machines."""
        return len(self.pods)

    def pods_endpoints(self) -> list[str]:
        """The endpoint of each machine. Raises ValueError for one without address or port."""
        lacking = [pod for pod in self.pods if pod.addr is None or pod.port is None]
        if lacking:
            raise ValueError(f"machine {lacking[0].rank} has no endpoint: set its addr and port")
        return [f"{pod.addr}:{pod.port}" for pod in self.pods]

    def get_pod_by_id(self, pod_id: int | str) -> Pod | None:
        """The machine with this id, or None."""
        return next((pod for pod in self.pods if str(pod.id) == str(pod_id)), None)

    def update_pods(self, cluster: Cluster) -> None:
        """Take over the machines of another cluster."""
        self.pods = list(cluster.pods)


def numbered_endpoints(hosts: Sequence[str], first: int, count: int) -> list[list[str]]:
    """The endpoints of `count` processes of each host, at port `first` and those after it.

    Raises ValueError for ports that do not exist.

    >>> numbered_endpoints(["a", "b"], 6070, 2)
    [['a:6070', 'a:6071'], ['b:6070', 'b:6071']]
    """
    if not 0 < first <= 65536 - count:
        raise ValueError(
            f"--started_port is {first} for {count} processes: expected ports to 65535"
        )
    return [[f"{host}:{port}" for port in range(first, first + count)] for host in hosts]


def cluster_of(
    hosts: Sequence[str], endpoints: Sequence[Sequence[str]], gpus: Sequence[Sequence[Gpu]]
) -> Cluster:
    """A job with one process on each machine for every entry of `gpus`, the GPUs of that process.

    `endpoints` has at least as many for each machine. Raises ValueError for fewer.
    """
    cluster = Cluster()
    for number, (host, own) in enumerate(zip(hosts, endpoints, strict=True)):
        if len(own) < len(gpus):
            raise ValueError(
                f"machine {host} has {len(own)} endpoints, expected {len(gpus)}, one a process"
            )
        first = number * len(gpus)
        trainers = [
            Trainer(list(devices), own[local], first + local) for local, devices in enumerate(gpus)
        ]
        cluster.pods.append(Pod(number, addr=host, trainers=trainers))
    return cluster


def get_cluster(
    node_ips: Sequence[str],
    node_ip: str,
    trainer_endpoints: Sequence[Sequence[str]],
    selected_gpus: Sequence[Gpu],
) -> tuple[Cluster, Pod]:
    """A job with one process for each GPU of each machine, and the machine `node_ip` of it.

    Raises ValueError for an address that is not in `node_ips`, or too few endpoints.
    """
    if node_ip not in node_ips:
        raise ValueError(f"--node_ip is {node_ip!r}, expected one of {', '.join(node_ips)}")
    cluster = cluster_of(node_ips, trainer_endpoints, [[gpu] for gpu in selected_gpus])
    return cluster, cluster.pods[list(node_ips).index(node_ip)]
