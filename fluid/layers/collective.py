"""Layers that communicate between ranks: `fluid.layers.collective._c_allreduce` and its kin.

All names begin with an underscore, as in Paddle 1.8.5: distributed programs are made by transpilers
and strategies, which append these ops.
"""

from __future__ import annotations

from typing import Any

from fluid import unique_name
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper

__all__: list[str] = []

REDUCTIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
"""The numbers by which `allreduce` knows reductions."""


def _allreduce(
    x: Variable, out: Variable | None = None, reduce_type: str = "sum", sync_mode: bool = False
) -> Variable:
    """`x` reduced over all ranks of ring 0, in `out` where that is given.

    Raises TypeError for a `reduce_type` other than "sum", "prod", "max", "min".
    """
    if reduce_type not in REDUCTIONS:
        raise TypeError(f"reduce type can only be [sum|prod|max|min], got {reduce_type!r}")
    out = out or _like(x, "tmp", list(x.shape), stop_gradient=True)
    attrs = {"reduce_type": REDUCTIONS[reduce_type], "sync_mode": sync_mode}
    return _appended("allreduce", x, out, attrs)


def _broadcast(x: Variable, root: int, sync_mode: bool = False) -> Variable:
    """`x` of the rank `root`, on all ranks of ring 0; in place."""
    return _appended("broadcast", x, x, {"sync_mode": sync_mode, "root": root})


def _c_allreduce(
    x: Variable,
    out: Variable | None = None,
    reduce_type: str = "sum",
    ring_id: int = 0,
    use_calc_stream: bool = False,
) -> Variable:
    """`x` reduced over all ranks of a ring, in `out` where that is given.

    Raises TypeError for a `reduce_type` other than "sum", "prod", "max", "min". The reference
    refuses "prod" by a slip of the pen.
    """
    if reduce_type not in REDUCTIONS:
        raise TypeError(f'reduce type can only be "sum|prod|max|min]", got {reduce_type!r}')
    kind = "c_allreduce_" + reduce_type
    attrs = {"ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _appended(kind, x, out or _like(x, kind, list(x.shape)), attrs)


def _c_broadcast(
    x: Variable, root: int = 0, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """`x` of the rank `root`, on all ranks of a ring; in place."""
    attrs = {"root": root, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _appended("c_broadcast", x, x, attrs)


def _c_allgather(
    x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """The rows of `x` of all `nranks` ranks of a ring, in rank order."""
    rows, *rest = x.shape
    out = _like(x, "c_allgather", [rows * nranks if rows > 0 else rows, *rest])
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _appended("c_allgather", x, out, attrs)


def _c_reducescatter(
    x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """This rank's share of the rows of the sum of `x` over the `nranks` ranks of a ring.

    Raises TypeError where `x` is no Variable and ValueError where its rows cannot be divided.
    """
    if not isinstance(x, Variable):
        raise TypeError(f"x must be a Variable, got {type(x).__name__}")
    rows, *rest = x.shape
    if rows > 0 and rows % nranks:
        raise ValueError(f"x.shape[0]({rows}) cannot be evenly divided by nranks({nranks})")
    out = _like(x, "c_reducescatter", [rows // nranks if rows > 0 else rows, *rest])
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _appended("c_reducescatter", x, out, attrs)


def _c_sync_calc_stream(x: Variable) -> Variable:
    """`x`, once it is computed; in place."""
    return _appended("c_sync_calc_stream", x, x, {})


def _c_sync_comm_stream(x: Variable, ring_id: int) -> Variable:
    """`x`, once what a ring does to it is done; in place."""
    return _appended("c_sync_comm_stream", x, x, {"ring_id": ring_id})


def _like(x: Variable, kind: str, shape: list[int], **fields: Any) -> Variable:
    """A variable like `x` with a name of its own."""
    name = unique_name.generate(f"{x.name}.{kind}")
    fields = {"dtype": x.dtype, "type": x.type, "persistable": x.persistable, **fields}
    return LayerHelper(kind).create_variable(name=name, shape=shape, **fields)


def _appended(kind: str, x: Variable, out: Variable, attrs: dict[str, Any]) -> Variable:
    helper = LayerHelper(kind)
    helper.append_op(type=kind, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    return out
