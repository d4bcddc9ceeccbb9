"""Recurrent layers whose loop is one op: dynamic LSTM and GRU, their single steps."""

from __future__ import annotations

__all__: list[str] = []
