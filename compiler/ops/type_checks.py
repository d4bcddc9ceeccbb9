"""Type checks of inputs, shared by several ops."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef.size_comparison import differ, shapes_differ
from compiler.ir.types import DType, Shape, TensorType
from compiler.support.limits import MAX_OUTPUTS


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
        if shapes_differ(first, other):
            raise ShapeError(f"{op}: {shown(**types)} must have one shape")


def require_same_count(op: str, **types: TensorType) -> None:
    """Raise ShapeError if two inputs are known to have other numbers of elements."""
    first, *rest = types.values()
    if any(differ(first.numel, other.numel) for other in rest):
        raise ShapeError(f"{op}: {shown(**types)} must have as many elements")


def require_scalar(op: str, **types: TensorType) -> None:
    """Raise ShapeError for an input that is known to have other than one element."""
    for slot, type in types.items():
        if differ(type.numel, 1):
            raise ShapeError(f"{op}: {slot} is {type}, expected one element")


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


def expect_few_outputs(kind: str, count: int) -> None:
    """Raise ShapeError if an op would split a tensor into more than MAX_OUTPUTS."""
    if count > MAX_OUTPUTS:
        raise ShapeError(f"{kind}: {count} outputs are more than {MAX_OUTPUTS}")
