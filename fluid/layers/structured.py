"""Losses over whole sequences: CRF, CTC, edit distance, chunks."""

from __future__ import annotations

__all__: list[str] = []
