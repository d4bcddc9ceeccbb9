"""Layers that pick and place elements by position: gather, scatter, slice, where."""

from __future__ import annotations

__all__: list[str] = []
