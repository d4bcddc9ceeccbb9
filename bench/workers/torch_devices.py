"""Training steps of DistributedDataParallel on Gloo for `distributed.py`: two one-thread ranks.

Rank 0 starts rank 1 and forwards every request to it. The mode `one` is a plain module in rank 0.
Batch norm's statistics are separate on each rank, as in this package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.workers import protocol, torch_step  # noqa: E402
from tests.support.nets import wide  # noqa: E402

RANKS = 2


def prepare(name: str, mode: str, rank: int) -> Callable[[], object]:
    """A function that makes one step and returns the loss as an array."""
    net, parts = _network(name).train(), 1 if mode == "one" else RANKS
    optimizer = torch_step.optimizer_of(name.removesuffix(wide.LARGE), net)
    if parts > 1:
        net = DistributedDataParallel(net, broadcast_buffers=False, gradient_as_bucket_view=True)
    batches = wide.drawn(name, parts, rank)

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch_step.loss_of(net, next(batches))
        loss.backward()
        optimizer.step()
        return loss.detach().numpy()

    return step


def _network(name: str) -> nn.Module:
    if name == "two_layers_wide":
        return nn.Sequential(nn.Linear(wide.FEATURES, wide.FEATURES), nn.Linear(wide.FEATURES, 1))
    return torch_step.network(name.removesuffix(wide.LARGE))


def serve(rank: int, other: subprocess.Popen[str] | None) -> None:
    """Answer requests until the input closes; rank 1 only takes the steps."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the replies
    prepared: dict[tuple[str, str], Callable[[], object]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = request["model"], request["mode"]
        if other and other.stdin and key[1] != "one":
            print(line, end="", file=other.stdin, flush=True)
        if key not in prepared:
            prepared[key] = prepare(*key, rank)
        reply = protocol.measured(prepared[key], request["steps"])
        if rank == 0:
            print(json.dumps(reply), file=replies, flush=True)


def main() -> None:
    """Start the other rank, meet over a file, then serve."""
    torch.set_num_threads(1)
    if sys.argv[1:]:
        run(1, sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        run(0, f"{folder}/meeting")


def run(rank: int, file: str) -> None:
    """Run a rank until the input closes."""
    other = None
    if rank == 0:
        command = [sys.executable, __file__, file]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    distributed.init_process_group("gloo", f"file://{file}", rank=rank, world_size=RANKS)
    try:
        serve(rank, other)
    finally:
        if other and other.stdin:
            other.stdin.close()
            other.wait()


if __name__ == "__main__":
    main()
