"""Training steps in torch, eager or compiled, for `step.py` and `cpu.py`.

Architectures, batches and optimizers are the same as in fluid.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.workers import protocol, torch_steps, torch_text
from tests.support.nets import steps, timed

Arrays = Mapping[str, np.ndarray]


class Normed(nn.Sequential):
    """A convolution with same padding, and a batch norm."""

    def __init__(self, before: int, channels: int, size: int = 3, stride: int = 1) -> None:
        convolution = nn.Conv2d(before, channels, size, stride, size // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(channels))


class Residual(nn.Module):
    """Two convolutions with a shortcut, which is a convolution if the image shrinks."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        first, second = Normed(before, channels, stride=stride), Normed(channels, channels)
        self.long = nn.Sequential(first, nn.ReLU(), second)
        self.short = nn.Identity() if stride == 1 else Normed(before, channels, 1, stride)

    def forward(self, found: Tensor) -> Tensor:
        return torch.relu(self.long(found) + self.short(found))


def network(name: str) -> nn.Module:
    """One of `steps.py`: class scores, or a number for `fit_a_line`.

    Those of `torch_text.py` and `torch_steps.py` return the loss of a batch.
    """
    return {**_NETWORKS, **WITH_LOSS}[name]()


WITH_LOSS = {**torch_text.NETWORKS, **torch_steps.NETWORKS}

_NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "fit_a_line": lambda: nn.Linear(13, 1),
    "digits_mlp": lambda: nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 48), nn.Tanh(),
        nn.Linear(48, 32), nn.ReLU(),
        nn.Linear(32, 10),
    ),
    "lenet_bn": lambda: nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.BatchNorm2d(6),
        nn.Conv2d(6, 8, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32, 10),
    ),
    "resnet_cifar8": lambda: nn.Sequential(
        Normed(3, 8), nn.ReLU(),
        Residual(8, 8, 1), Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    ),
}  # fmt: skip


def loss_of(net: Callable[..., Tensor], feed: Arrays, has_loss: bool = False) -> Tensor:
    """The mean loss of one batch as `steps` draws it; `has_loss` for a net that returns it."""
    if has_loss:
        return net(torch_text.tensors(feed))
    tensors = {name: torch.from_numpy(array) for name, array in feed.items()}
    if "y" in tensors:
        return functional.mse_loss(net(tensors["x"]), tensors["y"])
    return functional.cross_entropy(net(tensors["img"]), tensors["label"].flatten())


def optimizer_of(name: str, net: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a model, as in fluid."""
    if name in steps.LARGE:
        kind = steps.LARGE[name].optimizer
    else:
        kind = timed.OPTIMIZERS.get(name, timed.sgd)
    if kind is timed.adam:
        return torch.optim.Adam(net.parameters(), lr=0.001)
    return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9 * (kind is timed.momentum))


def prepare(name: str, mode: str) -> Callable[[], object]:
    """A function that makes one step and returns the loss as an array; `mode` may be compiled."""
    net = network(name).train()
    optimizer = optimizer_of(name, net)
    called = torch.compile(net) if mode == "compiled" else net
    batches = steps.drawn(name)

    def step() -> np.ndarray:
        optimizer.zero_grad()
        loss = loss_of(called, next(batches), name in WITH_LOSS)
        loss.backward()
        optimizer.step()
        return loss.detach().numpy()

    return step


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    protocol.serve(prepare)
