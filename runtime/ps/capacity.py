"""The number of bytes moved by a synchronous step, and of servers required for a job's speed.

Sizes follow from the layouts of messages, so they are exact: `received` and `sent` in the status of
a server are these numbers times steps and trainers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

import numpy as np

from compiler.support.dataclass import dataclass
from runtime.ps.service import Gradient
from runtime.ps.serving.inbox import gradient_layout
from runtime.ps.wire.frames import HEADER_BYTES
from runtime.ps.wire.layout import CHUNK_BYTES, ShardLayout, make_layout
from runtime.ps.wire.packets import pack
from runtime.ps.wire.rows import part_sizes

HTTP_FRAME = 16_384
"""Maximum bytes of one HTTP/2 frame, without its header of 9 bytes."""
HTTP_HEADER, GRPC_HEADER = 9, 5


@dataclass(frozen=True)
class Moved:
    """Messages of one direction: how many, and their bytes with the headers of this protocol."""

    messages: int
    nbytes: int

    def __add__(self, other: Moved) -> Moved:
        return Moved(self.messages + other.messages, self.nbytes + other.nbytes)

    @property
    def on_the_wire(self) -> int:
        """Bytes with the headers of gRPC and HTTP/2, without TCP's and TLS's."""
        frames = ceil(self.nbytes / HTTP_FRAME) + (self.messages > 0)
        return self.nbytes + self.messages * GRPC_HEADER + frames * HTTP_HEADER


NOTHING = Moved(0, 0)


def gradients_moved(gradients: Sequence[Gradient], rows: Mapping[str, int]) -> Moved:
    """The messages of gradients that a trainer sends to a server in a step.

    `rows` has the number of distinct rows of each sparse gradient; KeyError if one is missing.
    """
    if not gradients:
        return Moved(1, HEADER_BYTES)
    sparse = [
        _rows_moved(gradient, rows[gradient.name]) for gradient in gradients if gradient.is_sparse
    ]
    has_dense = len(sparse) < len(gradients)
    dense = [layout_moved(gradient_layout(gradients))] if has_dense else []
    return sum([*dense, *sparse], NOTHING)


def layout_moved(layout: ShardLayout) -> Moved:
    """The messages of a vector."""
    return Moved(len(layout.chunks), layout.nbytes + len(layout.chunks) * HEADER_BYTES)


def parameters_moved(variables: Iterable[tuple[str, str, tuple[int, ...]]]) -> Moved:
    """The messages of parameters that a server sends to a trainer in a step, as (name, dtype,
    shape).
    """
    return layout_moved(make_layout(variables))


def _rows_moved(gradient: Gradient, count: int) -> Moved:
    sizes = part_sizes(gradient.dtype, gradient.shape, count)
    return Moved(len(sizes), sum(sizes) + len(sizes) * HEADER_BYTES)


def lookups_moved(table: str, dtype: str, width: int, count: int) -> tuple[Moved, Moved]:
    """The request for `count` rows of a table, and its response.

    The response also has the number of the step, which is counted as one digit.
    """
    asked = len(pack({"do": "rows", "name": table})) + count * 8
    header = len(pack({"arrays": [[dtype, [count, width]]], "step": 0}))
    values = count * width * np.dtype(dtype).itemsize
    return Moved(1, asked), Moved(1 + ceil(values / CHUNK_BYTES), header + values)


def servers_needed(
    trainers: int, up: int, down: int, steps_a_second: float, server_bytes_a_second: float
) -> int:
    """The minimum number of servers for a job.

    `up` and `down` are the bytes of one trainer and step over all servers, which share them
    evenly; a server moves `server_bytes_a_second` each way at once.

    >>> servers_needed(8, 400_000_000, 400_000_000, 2.0, 1.25e9)
    6
    """
    busiest = max(up, down) * trainers * steps_a_second
    return max(1, ceil(busiest / server_bytes_a_second))
