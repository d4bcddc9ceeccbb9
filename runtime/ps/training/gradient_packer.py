"""The gradients of one trainer for one server, written into the messages of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.ps.service import Gradient
from runtime.ps.serving.inbox import gradient_layout
from runtime.ps.wire.frames import Kind, new_frame
from runtime.ps.wire.rows import merge_rows, row_frames

Put = Callable[[int, bytes], None]


def read_gradients(catalogue: dict[str, Any], trainer: int) -> list[Gradient]:
    """The gradients that a server's catalogue lists."""
    return [
        Gradient(str(name), str(dtype), tuple(int(n) for n in shape), bool(sparse), trainer)
        for name, dtype, shape, sparse in catalogue["gradients"]
    ]


class GradientPacker:
    """Collects gradients; `put` is called with each complete message."""

    def __init__(
        self, endpoint: str, trainer: int, gradients: Sequence[Gradient], put: Put
    ) -> None:
        self._endpoint, self._trainer, self._put = endpoint, trainer, put
        self._known = {gradient.name: gradient for gradient in gradients}
        self._dtypes = {gradient.name: np.dtype(gradient.dtype) for gradient in gradients}
        self._sparse = [gradient.name for gradient in gradients if gradient.is_sparse]
        self._layout = gradient_layout(gradients)
        self._chunks = [chunk for chunk in self._layout.chunks if chunk[1] > chunk[0]]
        self._places = {block.name: self._layout.pieces(block) for block in self._layout.blocks}
        pieces = [piece for places in self._places.values() for piece in places]
        self._sizes = [
            sum(piece.nbytes for piece in pieces if piece.chunk == index)
            for index in range(len(self._chunks))
        ]
        self._begin()

    def _begin(self) -> None:
        self._open: dict[int, tuple[bytes, Array]] = {}
        self._left = list(self._sizes)
        self._sent: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the step was sent yet."""
        return not self._sent

    def has(self, name: str) -> bool:
        """Whether the server accepts a gradient of this name."""
        return name in self._known

    def send(self, step: int, name: str, array: Array, rows: Array | None) -> None:
        """Send one gradient. Raises WireError if it does not match the server's catalogue."""
        entry = self._known.get(name)
        if entry is None or name in self._sent:
            what = "twice in a step" if entry else "which does not expect it"
            raise WireError(f"{name!r} is sent to server {self._endpoint} {what}")
        self._expect(entry, array, rows)
        self._sent.add(name)
        if not entry.is_sparse:
            return self._send_dense(step, name, array)
        if rows is None:
            rows = np.arange(len(array))
        for message in row_frames(
            self._trainer, step, self._sparse.index(name), *merge_rows(rows, array)
        ):
            self._put(step, message)
        return None

    def _expect(self, known: Gradient, array: Array, rows: Array | None) -> None:
        shape = (len(array), *known.shape[1:]) if known.is_sparse else known.shape
        if (
            array.dtype != self._dtypes[known.name]
            or array.shape != shape
            or (rows is not None and not known.is_sparse)
        ):
            raise WireError(
                f"{known.name!r} is {array.dtype} {list(array.shape)}, but server {self._endpoint} "
                f"takes {known.dtype} {list(known.shape)}: do all processes build the same program?"
            )

    def _send_dense(self, step: int, name: str, array: Array) -> None:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for piece in self._places[name]:
            index = piece.chunk
            self._chunk(step, index)[1][piece.there] = raw[piece.here]
            self._left[index] -= piece.nbytes
            if not self._left[index]:
                self._put(step, self._open.pop(index)[0])

    def _chunk(self, step: int, index: int) -> tuple[bytes, Array]:
        if index not in self._open:
            start, stop = self._chunks[index]
            self._open[index] = new_frame(Kind.GRADIENT, self._trainer, step, start, stop - start)
        return self._open[index]

    def end(self, step: int) -> None:
        """End a step. Raises WireError naming a gradient that was not sent."""
        missing = [name for name in self._known if name not in self._sent]
        if missing:
            raise WireError(
                f"{missing[0]!r} was not sent to server {self._endpoint} in step {step}: do all "
                "processes build the same program?"
            )
        if not self._known:
            self._put(step, new_frame(Kind.BARRIER, self._trainer, step, 0, 0)[0])
        self._begin()
