"""Tables of vectors, looked up by number."""

from __future__ import annotations

__all__: list[str] = []
