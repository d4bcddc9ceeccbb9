"""Numbered gradients of asynchronous trainers: none is applied twice."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.ps.wire.layout import CHUNK_BYTES
from runtime.ps.wire.peers import Peers
from runtime.ps.wire.rows import merge_rows


class NumberedGradients:
    """Sends gradients of one trainer in order; each call returns when the server has applied it."""

    def __init__(self, peers: Peers, trainer: int, sender: str) -> None:
        self._peers, self._trainer, self._sender = peers, trainer, sender
        self._numbers: dict[str, int] = {}
        self._lock = Lock()

    def push(self, endpoint: str, name: str, array: Array, rows: Array | None) -> None:
        """Send a gradient, sparse if it has row numbers. Raises WireError as `Peers.call`."""
        header: dict[str, Any] = {"name": name, "rows": None}
        raw = b""
        if rows is not None:
            rows, array = merge_rows(np.ascontiguousarray(rows, np.int64), array)
            header["rows"], raw = len(rows), rows.tobytes()
        self._send(endpoint, header, array, raw)

    def add(self, endpoint: str, name: str, array: Array) -> None:
        """Add to a counter of the learning-rate schedule."""
        self._send(endpoint, {"name": name, "adds": True}, array, b"")

    def _send(self, endpoint: str, header: dict[str, Any], array: Array, before: bytes) -> None:
        described = {"dtype": str(array.dtype), "shape": list(array.shape)}
        raw = before + np.ascontiguousarray(array).tobytes()
        parts = max(1, -(-len(raw) // CHUNK_BYTES))
        with self._lock:
            number = self._numbers[endpoint] = self._numbers.get(endpoint, 0) + 1
            fields = {"do": "push", "trainer": self._trainer, "sender": self._sender}
            fields |= {"number": number, "parts": parts, **described, **header}
            for part in range(parts):
                some = raw[part * CHUNK_BYTES : (part + 1) * CHUNK_BYTES]
                self._peers.call(endpoint, fields | {"part": part}, some)
