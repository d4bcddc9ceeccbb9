"""Variables sent to and received from parameter servers, in program order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from compiler.ir.opdef import (
    HostOp,
    Slots,
    attr,
    reads,
    reads_rows,
    reads_token,
    writes,
    writes_token,
)
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.ps.server_interface import ServerInterface, connected

CONTROL = TensorType(DType.FP32, (0,))
"""Type of control variables, empty tensors that represent dependencies between ops."""


def control_value() -> Array:
    """Return the value of a control variable."""
    return np.zeros(0, np.float32)


class Exchange(HostOp):
    """An op that communicates with servers; `Before` and `After` keep program order."""

    no_kernel_reason = "it communicates with parameter servers"
    lod_source = ""

    Before = reads_token()
    After = writes_token()
    parameter_server: ClassVar[ServerInterface | None] = None
    """Set by the module that calls the op; None in a process without servers."""


def split_rows(sections: Sequence[int], values: Array) -> list[Array]:
    """Split the rows of an array into sections."""
    return [np.ascontiguousarray(part) for part in np.split(values, np.cumsum(sections)[:-1])]


def split_sparse_rows(
    sections: Sequence[int], values: Array, rows: Array
) -> tuple[list[Array], list[Array]]:
    """Split sparse rows by section, with row indices relative to the section.

    Raises IndexError for a row beyond the last section.
    """
    ends = np.cumsum(sections)
    if rows.size and not 0 <= rows.min() <= rows.max() < ends[-1]:
        raise IndexError(
            f"row indices range from {rows.min()} to {rows.max()}, expected 0 to {ends[-1] - 1}"
        )
    part = np.searchsorted(ends, rows, side="right")
    starts = ends - np.asarray(sections)
    chosen = [np.flatnonzero(part == index) for index in range(len(sections))]
    numbers = [rows[indices] - start for indices, start in zip(chosen, starts, strict=True)]
    return [values.take(indices, axis=0, mode="clip") for indices in chosen], numbers


class Send(Exchange, op="send"):
    """Send the variables X to the servers `epmap`; Out is a control variable.

    On the server they are called `send_varnames`, else as here. With several such names, X is one
    variable whose rows are split into `sections` first; one name with many servers is sent to all
    of them. With `merge_add` the values are added to the server's. ClipX with a `clip_norm` scales
    the sent values by clip_norm / max(clip_norm, norm of all ClipX), and Scale returns that factor
    for other `send` ops, which read it as Factor; `share` is another factor. Reference: send_op.cc;
    clipping and `share` are extensions.
    """

    X = reads(many=True)
    X_rows = reads_rows("X")
    ClipX = reads(many=True, optional=True)
    ClipX_rows = reads_rows("ClipX")
    Factor = reads(optional=True)
    Out = writes(many=True)
    Scale = writes(optional=True)
    trainer_id = attr(0)
    epmap = attr(list[str]())
    sections = attr(list[int]())
    send_varnames = attr(list[str]())
    num = attr(0)
    merge_add = attr(False)
    use_send_handler = attr(True)
    clip_norm = attr(0.0)
    share = attr(1.0)
    X_names = attr(list[str]())

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        return {"Out": [CONTROL], "Scale": TensorType(DType.FP32, (1,))}

    def numpy(
        self,
        X: list[Array],
        X_rows: list[Array] | None,
        ClipX: list[Array] | None,
        ClipX_rows: list[Array] | None,
        Factor: Array | None,
    ) -> dict[str, Any]:
        names, arrays, rows = self.send_varnames or self.X_names, X, X_rows
        if self.share != 1.0:
            arrays = [array * array.dtype.type(self.share) for array in arrays]
        if ClipX:
            Factor = clip_factor(ClipX, ClipX_rows, self.clip_norm)
        if Factor is not None:
            arrays = [array * Factor.astype(array.dtype) for array in arrays]
        if self.sections and len(names) > len(arrays) == 1 and rows:
            arrays, rows = split_sparse_rows(self.sections, arrays[0], rows[0])
        elif self.sections and len(names) > len(arrays) == 1:
            arrays = split_rows(self.sections, arrays[0])
        elif len(self.epmap) > len(names) == 1:
            names, arrays = names * len(self.epmap), arrays * len(self.epmap)
        connected(self.parameter_server).send(
            names, self.epmap, arrays, rows, self.trainer_id, self.merge_add, self.use_send_handler
        )
        scale = np.ones(1, np.float32) if Factor is None else Factor
        return {"Out": [control_value()], "Scale": scale}


def clip_factor(values: Sequence[Array], rows: Sequence[Array] | None, limit: float) -> Array:
    """Return limit / max(limit, norm of values), float32 [1]; duplicate rows are summed first."""
    merged = (
        values if not rows else [row_sums(*sparse) for sparse in zip(values, rows, strict=True)]
    )
    squares = sum(
        float(np.square(values_of_rows, dtype=np.float64).sum()) for values_of_rows in merged
    )
    return np.full(1, limit / max(limit, squares**0.5), np.float32)


def row_sums(values: Array, rows: Array) -> Array:
    """Sum the values of each distinct row index."""
    numbers, inverse = np.unique(rows, return_inverse=True)
    total = np.zeros((len(numbers), *values.shape[1:]), values.dtype)
    np.add.at(total, inverse.reshape(-1), values)
    return total


class Recv(Exchange, op="recv"):
    """Out = the variables of the servers `epmap`, called `recv_varnames` there, else as here.

    Several names for one Out are concatenated along rows. Reference: recv_op.cc.
    """

    X = reads(many=True, optional=True)
    Out = writes(many=True)
    epmap = attr(list[str]())
    trainer_id = attr(0)
    with_barrier = attr(True)
    varnames = attr(list[str]())
    recv_varnames = attr(list[str]())
    do_not_run = attr(0)
    Out_names = attr(list[str]())

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {}

    def numpy(self) -> dict[str, list[Array]]:
        names = self.recv_varnames or self.varnames or self.Out_names
        arrays = list(connected(self.parameter_server).recv(names, self.epmap, self.trainer_id))
        if len(arrays) > 1 and len(self.Out_names) == 1:
            arrays = [np.concatenate(arrays)]
        return {"Out": arrays}


class SendBarrier(Exchange, op="send_barrier"):
    """Signal that all gradients of a step are sent, and wait for the updates.

    Reference: send_barrier_op.cc.
    """

    X = reads(many=True, optional=True)
    Out = writes(many=True)
    trainer_id = attr(0)
    endpoints = attr(list[str]())
    half_async = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        return {"Out": [CONTROL]}

    def numpy(self) -> dict[str, list[Array]]:
        connected(self.parameter_server).send_barrier(
            self.endpoints, self.trainer_id, self.half_async
        )
        return {"Out": [control_value()]}


class EndOfReceive(Exchange):
    """An op that ends the receiving of a step's parameters."""

    trainer_id = attr(0)
    endpoints = attr(list[str]())

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        return {}


class FetchBarrier(EndOfReceive, op="fetch_barrier"):
    """Signal that all parameters of a step, listed in Out, are received.

    Out is not written: program conversion rewrites it to `fetched`. Reference: fetch_barrier_op.cc.
    """

    X = reads(many=True, optional=True)
    Out = writes(many=True, optional=True)

    def numpy(self) -> dict[str, list[Array]]:
        connected(self.parameter_server).fetch_barrier(self.endpoints, self.trainer_id)
        return {"Out": []}


class Fetched(EndOfReceive, op="fetched"):
    """`fetch_barrier` without the list of received variables."""

    def numpy(self) -> dict[str, list[Array]]:
        connected(self.parameter_server).fetch_barrier(self.endpoints, self.trainer_id)
        return {}
