"""Arrays of tensors, and what sorts sequences by length for loops over time."""

from __future__ import annotations

__all__: list[str] = []
