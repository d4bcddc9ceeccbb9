"""`fluid.data`: a variable to feed whose feeds are checked."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.recording.annotations import DTypeLike
from fluid.recording.arguments import typed
from fluid.recording.atomic import atomic

__all__ = ["data"]


@typed
@atomic
def data(
    name: str, shape: Sequence[int | None], dtype: DTypeLike = "float32", lod_level: int = 0
) -> Variable:
    """Declare a variable to feed with exactly this shape; None and -1 mean any size.

    Running the program raises ValueError for a feed of another shape or dtype.
    """
    return LayerHelper("data", name=name).create_global_variable(
        name=name,
        shape=[-1 if size is None else size for size in shape],
        dtype=dtype,
        stop_gradient=True,
        lod_level=lod_level,
        is_data=True,
        need_check_feed=True,
    )
