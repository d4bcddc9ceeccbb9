"""Layers of arithmetic: reductions along axes, sorting, linear algebra, tests of values."""

from __future__ import annotations

__all__: list[str] = []
