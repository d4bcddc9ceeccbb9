"""Collective layers: `fluid.layers.collective._c_allreduce` and others.

All names begin with an underscore, as in Paddle 1.8.5: these ops are appended by the transpilers
and strategies that build distributed programs.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluid import unique_name
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.recording.annotations import Attributes

__all__: list[str] = []

REDUCTIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
"""Enum values of the reductions of `allreduce`."""


def _allreduce(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    x: Variable, out: Variable | None = None, reduce_type: str = "sum", sync_mode: bool = False
) -> Variable:
    """All-reduce `x` over ring 0, written to `out` if it is not None.

    Raises TypeError for a `reduce_type` other than "sum", "prod", "max", "min".
    """
    if reduce_type not in REDUCTIONS:
        raise TypeError(f"reduce type can only be [sum|prod|max|min], got {reduce_type!r}")
    out = out or _like(x, "tmp", x.shape, stop_gradient=True)
    attrs = {"reduce_type": REDUCTIONS[reduce_type], "sync_mode": sync_mode}
    return _appended("allreduce", x, out, attrs)


def _broadcast(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    x: Variable,
    root: int,
    sync_mode: bool = False,
) -> Variable:
    """Broadcast `x` from rank `root` to all ranks of ring 0, in place."""
    return _appended("broadcast", x, x, {"sync_mode": sync_mode, "root": root})


def _c_allreduce(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    x: Variable,
    out: Variable | None = None,
    reduce_type: str = "sum",
    ring_id: int = 0,
    use_calc_stream: bool = False,
) -> Variable:
    """All-reduce `x` over the ranks of a ring, written to `out` if it is not None.

    Raises TypeError for a `reduce_type` other than "sum", "prod", "max", "min". The reference
    rejects "prod" because of a typo.
    """
    if reduce_type not in REDUCTIONS:
        raise TypeError(f'reduce type can only be "sum|prod|max|min]", got {reduce_type!r}')
    kind = "c_allreduce_" + reduce_type
    attrs = {"ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _appended(kind, x, out or _like(x, kind, list(x.shape)), attrs)


def _c_broadcast(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    x: Variable, root: int = 0, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """Broadcast `x` from rank `root` to all ranks of a ring, in place."""
    attrs = {"root": root, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _appended("c_broadcast", x, x, attrs)


def _c_allgather(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """Concatenate the rows of `x` of all `nranks` ranks of a ring, in rank order."""
    rows, *rest = x.shape
    out = _like(x, "c_allgather", [rows * nranks if rows > 0 else rows, *rest])
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _appended("c_allgather", x, out, attrs)


def _c_reducescatter(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """Sum `x` over the `nranks` ranks of a ring and return this rank's share of the rows.

    Raises TypeError if `x` is no Variable and ValueError if its rows are not divisible by `nranks`.
    """
    if not isinstance(x, Variable):  # pyright: ignore[reportUnnecessaryIsInstance] - checked
        raise TypeError(f"x must be a Variable, got {type(x).__name__}")
    rows, *rest = x.shape
    if rows > 0 and rows % nranks:
        raise ValueError(f"x.shape[0]({rows}) cannot be evenly divided by nranks({nranks})")
    out = _like(x, "c_reducescatter", [rows // nranks if rows > 0 else rows, *rest])
    attrs = {"nranks": nranks, "ring_id": ring_id, "use_calc_stream": use_calc_stream}
    return _appended("c_reducescatter", x, out, attrs)


def _c_sync_calc_stream(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    x: Variable,
) -> Variable:
    """Synchronize the computation stream; returns `x`, in place."""
    return _appended("c_sync_calc_stream", x, x, {})


def _c_sync_comm_stream(  # pyright: ignore[reportUnusedFunction] - a name of Paddle
    x: Variable,
    ring_id: int,
) -> Variable:
    """Synchronize the communication stream of a ring; returns `x`, in place."""
    return _appended("c_sync_comm_stream", x, x, {"ring_id": ring_id})


def _like(x: Variable, kind: str, shape: Sequence[int], stop_gradient: bool = False) -> Variable:
    """Create a variable like `x` with a unique name."""
    return LayerHelper(kind).create_variable(
        name=unique_name.generate(f"{x.name}.{kind}"),
        shape=shape,
        dtype=x.dtype,
        type=x.type,
        persistable=x.persistable,
        stop_gradient=stop_gradient,
    )


def _appended(kind: str, x: Variable, out: Variable, attrs: Attributes) -> Variable:
    helper = LayerHelper(kind)
    helper.append_op(type=kind, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    return out
