"""Recurrent cells and decoders that are made of other layers."""

from __future__ import annotations

__all__: list[str] = []
