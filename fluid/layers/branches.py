"""Branches: IfElse, cond, case, switch_case."""

from __future__ import annotations

__all__: list[str] = []
