"""Losses that sample or split the classes: nce, hierarchical sigmoid, sampled softmax."""

from __future__ import annotations

__all__: list[str] = []
