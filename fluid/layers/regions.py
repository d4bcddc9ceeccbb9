"""Layers of regions of interest: what pictures show inside boxes."""

from __future__ import annotations

__all__: list[str] = []
