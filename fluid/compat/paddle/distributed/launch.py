"""`python -m paddle.distributed.launch` of release 1.8: `fluid launch` under its old name.

Run as `fluid run -m paddle.distributed.launch --selected_gpus 0,1 train.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fleet.launch.agent import run_job
from fleet.launch.arguments import job_of, machine_endpoints, main, parse, visible_gpus
from fleet.launch.cluster import Cluster, Gpu, Pod, get_cluster
from fluid.compat.paddle.distributed.utils import find_free_ports
from fluid.core import get_cuda_device_count

__all__ = ["get_cluster_from_args", "get_gpus", "launch", "main"]


def get_gpus(selected_gpus: str | None) -> list[str] | list[int]:
    """Return the GPUs of a flag such as `0,1`, all GPUs for None.

    With CUDA_VISIBLE_DEVICES they are positions in that list; ValueError for a GPU not in it.
    """
    if selected_gpus is None:
        return [str(number) for number in range(get_cuda_device_count())]
    return visible_gpus([gpu.strip() for gpu in selected_gpus.split(",")])


def get_cluster_from_args(
    args: argparse.Namespace, selected_gpus: Sequence[Gpu]
) -> tuple[Cluster, Pod]:
    """Return the job that a command line describes, one process a GPU, and this machine of it.

    Ports are free ones on one machine without `started_port`, else those from `started_port`
    (6070). Raises ValueError for a `node_ip` that is not in `cluster_node_ips`.
    """
    addresses = [address.strip() for address in args.cluster_node_ips.split(",")]
    is_free = len(addresses) == 1 and args.started_port is None and not args.use_paddlecloud
    if is_free:
        ports = sorted(find_free_ports(len(selected_gpus)))
        endpoints = [[f"{addresses[0]}:{port}" for port in ports]]
    else:
        endpoints = machine_endpoints(addresses, args.started_port, len(selected_gpus), {})
    return get_cluster(addresses, args.node_ip, endpoints, selected_gpus)


def launch(args: argparse.Namespace) -> None:
    """Run the job of a command line to its end. Raises SystemExit with its exit code if it fails,
    ValueError for flags that do not go together.
    """
    code = run_job(job_of(args))
    if code:
        raise SystemExit(code)


def _parse_args() -> argparse.Namespace:  # pyright: ignore[reportUnusedFunction] - scripts call it
    """Parse this process's command line."""
    return parse()


def _print_arguments(args: argparse.Namespace) -> None:  # pyright: ignore[reportUnusedFunction] - scripts call it
    """Print the values of a command line, by name."""
    print("-----------  Configuration Arguments -----------")
    for name, value in sorted(vars(args).items()):
        print(f"{name}: {value}")
    print("------------------------------------------------")


if __name__ == "__main__":
    sys.exit(main())
