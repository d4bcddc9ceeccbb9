"""Type checks of inputs, shared by several ops."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Dim, Size
from compiler.ir.types import DType, Shape, TensorType


def differ(a: Size, b: Size) -> bool:
    """True if two sizes are known to differ: two numbers, or two declared names.

    >>> differ(3, 4), differ(3, 3), differ(Dim.named("N"), Dim.named("M"))
    (True, False, True)
    """
    return a != b and _is_plain(a) == _is_plain(b) != ""


def _is_plain(size: Size) -> str:
    """The kind of a plain size; empty for unknown and computed ones."""
    if isinstance(size, int):
        return "number"
    return "name" if size.known and size == Dim.named(size.names[0]) else ""


def shown(**types: TensorType) -> str:
    """Format slots and their types for messages.

    >>> shown(X=TensorType(DType.FP32, (3, 4)), Y=TensorType(DType.INT64, (5,)))
    'X f32[3, 4] and Y i64[5]'
    """
    return " and ".join(f"{slot} {type}" for slot, type in types.items())


def require_same_dtype(op: str, **types: TensorType) -> None:
    """Raise ShapeError unless all inputs have one element type, as in the reference."""
    if len({type.dtype for type in types.values()}) > 1:
        raise ShapeError(f"{op}: {shown(**types)} must have one element type", hint="cast one")


def require_same_shape(op: str, **types: TensorType) -> None:
    """Raise ShapeError unless all inputs may have one shape."""
    first, *rest = types.values()
    for other in rest:
        sizes = zip(first.shape, other.shape, strict=False)
        if first.rank != other.rank or any(differ(a, b) for a, b in sizes):
            raise ShapeError(f"{op}: {shown(**types)} must have one shape")


def require_dtype(op: str, slot: str, type: TensorType, *allowed: DType) -> None:
    """Raise ShapeError unless an input has one of the allowed element types."""
    if type.dtype not in allowed:
        names = " or ".join(dtype.text for dtype in allowed)
        raise ShapeError(f"{op}: {slot} is {type}, expected element type {names}")


def literal_shape(op: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """The attribute `shape` of an op without inputs; BadAttribute for a -1."""
    if any(size < 0 for size in sizes):
        raise BadAttribute(f"{op}: attribute 'shape' is {list(sizes)}, expected sizes from 0 up")
    return tuple(sizes)


def numeric(shape: Shape) -> tuple[int, ...]:
    """A shape of static sizes only, like those of arrays."""
    return tuple(size for size in shape if isinstance(size, int))
