"""The messages of one trainer for an unfinished step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.ps.service import ROWS, Gradient
from runtime.ps.wire.assembly import Assembly
from runtime.ps.wire.frames import Frame, Kind
from runtime.ps.wire.layout import ShardLayout, make_layout
from runtime.ps.wire.rows import part_sizes, read_rows

Part = tuple[Array, Array]

NOTHING = -1
"""Represents the message of a trainer that has no gradient to send."""


def gradient_layout(gradients: Sequence[Gradient]) -> ShardLayout:
    """The layout of dense gradients in the vector of a trainer."""
    dense = [gradient for gradient in gradients if not gradient.is_sparse]
    return make_layout((gradient.name, gradient.dtype, gradient.shape) for gradient in dense)


class Inbox:
    """The gradients of one trainer. Dense ones share a vector, sparse ones are lists of parts.

    Messages are kept without a copy until the step is complete.
    """

    def __init__(self, gradients: Sequence[Gradient]) -> None:
        self._dense = Assembly(gradient_layout(gradients))
        self._has_dense = any(not gradient.is_sparse for gradient in gradients)
        self.sparse = [gradient for gradient in gradients if gradient.is_sparse]
        self._largest = [part_sizes(e.dtype, e.shape, e.shape[0]) for e in self.sparse]
        self.clear()

    def clear(self) -> None:
        """Start the next step."""
        self._parts: list[dict[int, Part]] = [{} for _ in self.sparse]
        self._counts = [0 for _ in self.sparse]
        self._missing = set(range(len(self._dense.layout.chunks) if self._has_dense else 0))
        if not self._has_dense and not self.sparse:
            self._missing.add(NOTHING)
        self._missing_rows = set(range(len(self.sparse)))
        self.is_empty = True

    @property
    def is_complete(self) -> bool:
        """Whether all messages of the step have arrived."""
        return not self._missing and not self._missing_rows

    def take(self, frame: Frame) -> None:
        """Store one message; it replaces an earlier one. WireError if it does not fit the
        layout.
        """
        self.is_empty = False
        if frame.kind is Kind.BARRIER:
            self._missing.discard(NOTHING)
            return None
        if frame.kind is Kind.ROWS:
            return self._take_rows(frame)
        index = self._dense.index(frame.offset, len(frame.data)) if self._has_dense else None
        if index is None:
            raise WireError(
                f"trainer {frame.trainer} sent {len(frame.data)} bytes at {frame.offset}, which is "
                "no chunk of this server: do all processes build the same program?"
            )
        self._dense.put(index, frame.data)
        self._missing.discard(index)
        return None

    def _take_rows(self, frame: Frame) -> None:
        if not 0 <= frame.offset < len(self.sparse):
            raise WireError(
                f"trainer {frame.trainer} sent sparse gradient {frame.offset}, but this server has "
                f"{len(self.sparse)}: do all processes build the same program?"
            )
        slot = frame.offset
        kind = self.sparse[slot]
        part, parts, rows, values = read_rows(frame.data, kind.dtype, kind.shape)
        most = self._largest[slot]
        if parts > len(most) or len(frame.data) > most[0] or self._counts[slot] not in (0, parts):
            raise WireError(
                f"trainer {frame.trainer} sent {len(frame.data)} bytes of {parts} parts of "
                f"{kind.name}, expected {len(most)} parts of {most[0]} bytes at most"
            )
        self._counts[slot] = parts
        self._parts[slot][part] = (rows, values)
        if len(self._parts[slot]) == parts:
            self._missing_rows.discard(slot)

    def feeds(self, factor: float) -> dict[str, Array]:
        """The gradients by name, times a factor; zeros if the step is not complete."""
        if not self.is_complete:
            self._dense.clear()
            self._parts = [{} for _ in self.sparse]
        gradients = self._dense.blocks()
        for gradient, parts in zip(self.sparse, self._parts, strict=True):
            gradients |= _joined(gradient, [parts[number] for number in sorted(parts)])
        if factor != 1.0:
            scaled = [name for name in gradients if not name.endswith(ROWS)]
            gradients |= {
                name: gradients[name] * gradients[name].dtype.type(factor) for name in scaled
            }
        return gradients


def _joined(gradient: Gradient, parts: Sequence[Part]) -> dict[str, Array]:
    """Concatenate the parts of a sparse gradient."""
    if not parts:
        empty = np.zeros((0, *gradient.shape[1:]), gradient.dtype)
        return {gradient.name: empty, gradient.name + ROWS: np.zeros(0, np.int64)}
    rows, values = zip(*parts, strict=True)
    if len(parts) == 1:
        return {gradient.name: values[0], gradient.name + ROWS: rows[0]}
    return {gradient.name: np.concatenate(values), gradient.name + ROWS: np.concatenate(rows)}
