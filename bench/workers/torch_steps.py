"""The larger models of `nets/steps.py` in torch, for `torch_step.py`; each returns its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.workers.torch_text import WideDeep
from tests.support.nets.steps import ENCODER, ROWS, STEPS, WIDTH


class LeNet(nn.Module):
    """Two convolutions with pooling and two fully connected layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
        )  # fmt: skip

    def forward(self, feed: Mapping[str, Tensor]) -> Tensor:
        """The loss of a batch."""
        return functional.cross_entropy(self.layers(feed["img"]), feed["label"][:, 0])


class Basic(nn.Module):
    """Two convolutions with a shortcut, which is a convolution if the shapes differ."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.long = nn.Sequential(
            _normed(before, channels, 3, stride), nn.ReLU(), _normed(channels, channels, 3, 1)
        )
        same = before == channels and stride == 1
        self.short = nn.Identity() if same else _normed(before, channels, 1, stride)

    def forward(self, found: Tensor) -> Tensor:
        return torch.relu(self.long(found) + self.short(found))


def _normed(before: int, channels: int, size: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(before, channels, size, stride, size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels))


class ResNet18(nn.Module):
    """Eight blocks of two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        before = 64
        for stage in range(4):
            for place in range(2):
                stride = 2 if place == 0 and stage else 1
                layers.append(Basic(before, 64 * 2**stage, stride))
                before = 64 * 2**stage
        top = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)
        self.layers = nn.Sequential(*layers, *top)

    def forward(self, feed: Mapping[str, Tensor]) -> Tensor:
        """The loss of a batch."""
        return functional.cross_entropy(self.layers(feed["img"]), feed["label"][:, 0])


class Lstm(nn.Module):
    """One LSTM layer; the mean squared distance of its states to a target."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, feed: Mapping[str, Tensor]) -> Tensor:
        """The loss of a batch."""
        states, _ = self.layer(feed["x"].reshape(-1, STEPS, WIDTH))
        return functional.mse_loss(states.reshape(-1, WIDTH), feed["y"])


class Block(nn.Module):
    """A layer of the encoder: attention and feed-forward, each with its residual norm."""

    def __init__(self) -> None:
        super().__init__()
        width = ENCODER.width
        self.parts = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width, bias=False)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, found: Tensor, away: Tensor) -> Tensor:
        heads, width = ENCODER.heads, ENCODER.width
        query, key, value = (
            part(found).reshape(-1, ENCODER.steps, heads, width // heads).transpose(1, 2)
            for part in self.parts
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=away)
        found = self.first(found + self.out(mixed.transpose(1, 2).flatten(2)))
        return self.second(found + self.outer(torch.relu(self.inner(found))))


class Encoder(nn.Module):
    """Layers over embedded words with positions; one class per sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ENCODER.words, ENCODER.width)
        self.blocks = nn.ModuleList(Block() for _ in range(ENCODER.depth))
        self.top = nn.Linear(ENCODER.width, 5)
        half = ENCODER.width // 2
        angles = torch.arange(ENCODER.steps)[:, None] / 10000 ** (torch.arange(half) / half)
        self.register_buffer("places", torch.cat([angles.sin(), angles.cos()], dim=1))

    def forward(self, feed: Mapping[str, Tensor]) -> Tensor:
        """The loss of a batch."""
        mask = feed["source_mask"]
        away = ((mask - 1) * 1e9)[:, None, None, :]
        hidden = self.table(feed["source"]) * ENCODER.width**0.5 + self.places
        for block in self.blocks:
            hidden = block(hidden, away)
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return functional.cross_entropy(self.top(mean), feed["label"][:, 0])


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "lenet": LeNet,
    "resnet18": ResNet18,
    "lstm": Lstm,
    "encoder": Encoder,
    "ctr_million": lambda: WideDeep(ROWS),
}
