"""Loops: While, while_loop, StaticRNN, DynamicRNN."""

from __future__ import annotations

__all__: list[str] = []
