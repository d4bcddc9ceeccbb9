"""ResNet-50 for torch, layer for layer the one in `images.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def _conv(given: int, filters: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias, and a norm."""
    conv = nn.Conv2d(given, filters, size, stride, size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(filters))


class Block(nn.Module):
    """A bottleneck block: three convolutions and a shortcut."""

    def __init__(self, given: int, filters: int, stride: int) -> None:
        super().__init__()
        self.first = _conv(given, filters, 1)
        self.second = _conv(filters, filters, 3, stride)
        self.third = _conv(filters, 4 * filters, 1)
        same = given == 4 * filters and stride == 1
        self.short = nn.Identity() if same else _conv(given, 4 * filters, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The residual sum."""
        hidden = self.relu(self.second(self.relu(self.first(x))))
        return self.relu(self.third(hidden) + self.short(x))


def resnet50(classes: int = 1000) -> Any:
    """The network, with 3, 4, 6 and 3 blocks."""
    layers: list[nn.Module] = [_conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for place in range(depth):
            layers.append(Block(channels, 64 * 2**stage, 2 if place == 0 and stage else 1))
            channels = 256 * 2**stage
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )
