"""Layers of images: transposed and 3-D convolution, 3-D pooling, resizing, regions."""

from __future__ import annotations

__all__: list[str] = []
