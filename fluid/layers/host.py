"""Layers that run beside the numbers: Print, py_func, Assert."""

from __future__ import annotations

__all__: list[str] = []
