"""Layers that give the same elements another shape or order: concat, split, squeeze, pad."""

from __future__ import annotations

__all__: list[str] = []
