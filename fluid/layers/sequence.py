"""Layers of sequences of several lengths (LoD)."""

from __future__ import annotations

__all__: list[str] = []
