"""`python -m paddle.distributed.launch` of release 1.8: `fluid launch` under its old name.

Run as `fluid run -m paddle.distributed.launch --selected_gpus 0,1 train.py`.
"""

from __future__ import annotations

import argparse
import sys

from compiler.support.settings.systems import CUDA_VISIBLE_DEVICES
from fleet.launch.arguments import main
from fluid.core import get_cuda_device_count

__all__ = ["get_gpus", "main"]


def get_gpus(selected_gpus: str | None) -> list[str] | list[int]:
    """Return the GPUs of a flag such as `0,1`, all GPUs for None.

    With CUDA_VISIBLE_DEVICES they are positions in that list; ValueError for a GPU not in it.
    """
    if selected_gpus is None:
        return [str(number) for number in range(get_cuda_device_count())]
    selected = [gpu.strip() for gpu in selected_gpus.split(",")]
    visible = [gpu.strip() for gpu in CUDA_VISIBLE_DEVICES.text().split(",") if gpu.strip()]
    if not visible:
        return selected
    hidden = [gpu for gpu in selected if gpu not in visible]
    if hidden:
        raise ValueError(f"GPU {hidden[0]} is not in CUDA_VISIBLE_DEVICES={','.join(visible)}")
    return [visible.index(gpu) for gpu in selected]


def _print_arguments(args: argparse.Namespace) -> None:  # pyright: ignore[reportUnusedFunction] - scripts call it
    """Print the values of a command line, by name."""
    print("-----------  Configuration Arguments -----------")
    for name, value in sorted(vars(args).items()):
        print(f"{name}: {value}")
    print("------------------------------------------------")


if __name__ == "__main__":
    sys.exit(main())
