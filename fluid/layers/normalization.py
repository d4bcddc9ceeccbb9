"""Layers that normalise: layer, group, instance and response normalisation."""

from __future__ import annotations

__all__: list[str] = []
