"""Where data comes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid.checks import check_type
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.var_types import VarDesc

__all__ = ["data"]


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: int = VarDesc.VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """A variable to feed, with an unknown batch size in front.

    Unless `append_batch_size` is False or the shape says itself, by -1 or None, what is unknown.
    What is fed is not checked against it, see `fluid.data`.
    """
    check_type(name, "name", str, "data")
    check_type(shape, "shape", (list, tuple), "data")
    sizes = [-1 if size is None else size for size in shape]
    if append_batch_size and min(sizes, default=0) >= 0:
        sizes = [-1, *sizes]
    return LayerHelper("data", name=name).create_global_variable(
        name=name,
        shape=sizes,
        dtype=dtype,
        type=type,
        stop_gradient=stop_gradient,
        lod_level=lod_level,
        is_data=True,
    )
