"""Broadcasting of shapes, and reducing a result back to its declared shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size
from compiler.ir.types import HALVES, Array, DType, Shape, TensorType


def broadcast(op: str, shapes: Sequence[Shape]) -> Shape:
    """Broadcast shapes by NumPy's rules; ShapeError if they are incompatible.

    >>> broadcast("elementwise_add", [(3, 1), (4,)])
    (3, 4)
    """
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_joined(op, sizes, shapes) for sizes in zip(*padded, strict=True))


def _joined(op: str, sizes: Sequence[Size], shapes: Sequence[Shape]) -> Size:
    known_sizes = [size for size in sizes if isinstance(size, int) or size.known]
    distinct = list(dict.fromkeys(size for size in known_sizes if size != 1))
    if len(distinct) > 1:
        text = " and ".join(f"[{', '.join(map(str, shape))}]" for shape in shapes)
        raise ShapeError(
            f"{op}: shapes {text} do not broadcast: {distinct[0]} is not {distinct[1]}"
        )
    unknown = [size for size in sizes if size not in known_sizes]
    return distinct[0] if distinct else unknown[0] if unknown else 1


def reduced_axes(result: Shape, view: Shape) -> tuple[int, ...]:
    """Return the axes of `result` to sum over so that it fits an aligned `view`."""
    padded = (1,) * (len(result) - len(view)) + tuple(view)
    pairs = enumerate(zip(result, padded, strict=True))
    return tuple(axis for axis, (size, want) in pairs if want == 1 and size != 1)


def fit(result: Array, wanted: TensorType, view: Shape | None = None) -> Array:
    """Reduce or broadcast a body's result to its declared shape, and cast it to its dtype.

    Half precision is summed in float32.
    """
    shape = cast("tuple[int, ...]", wanted.shape)
    axes = reduced_axes(result.shape, shape if view is None else view)
    if axes:
        wide = np.float32 if DType.of(result.dtype) in HALVES else None
        result = result.sum(axis=axes, dtype=wide, keepdims=True)
    if result.size != int(np.prod(shape)):
        result = np.broadcast_to(result, shape)
    return result.reshape(shape).astype(wanted.dtype.numpy, copy=False)
