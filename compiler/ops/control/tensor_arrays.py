"""Tensor arrays: growable lists of tensors, which loops write and read.

An array is an immutable value: writing an item returns another list. Items never written are None
(holes). For sequences, each LoD level of an array is an array of offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import (
    OpDef,
    Slots,
    attr,
    reads,
    reads_lod,
    reads_previous,
    writes,
    writes_lod,
)
from compiler.ir.program import OpDesc
from compiler.ir.types import Array as Tensor
from compiler.ir.types import DType, Shape, TensorType
from compiler.support.limits import MAX_ARRAY_ITEMS

LEVEL = TensorType(DType.INT64, (UNKNOWN,), is_array=True)
"""Type of one LoD level of an array."""


class WriteToArray(OpDef, op="write_to_array"):
    """Out = the previous array with X as item I. Reference: tensor_array_read_write_op.cc.

    The gradient is item I of Out's gradient, zeros if that is a hole.
    """

    no_kernel_reason = "tensor arrays are host values"

    X = reads()
    X_lod = reads_lod("X", optional=True)
    I = reads(no_grad=True)  # noqa: E741
    Out = writes()
    Out_lod = writes_lod("Out")
    Array = reads_previous("Out")
    Array_lod = reads_lod("Array", optional=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        levels = max(len(s.all("X_lod")), len(s.all("Array_lod")))
        return {"Out": appended_type(self.kind, s.get("Array"), s.X), "Out_lod": [LEVEL] * levels}

    def numpy(
        self,
        X: Tensor,
        X_lod: list[Tensor] | None,
        I: Tensor,  # noqa: E741
        Array: list[Tensor | None] | None,
        Array_lod: list[list[Tensor | None]] | None,
    ) -> dict[str, Any]:
        position = array_index(I)
        count = max(len(X_lod or ()), len(Array_lod or ()))
        before = Array_lod or [None] * count
        levels = X_lod or [None] * count
        Out_lod = [with_item(before[k], position, levels[k]) for k in range(count)]
        return {"Out": with_item(Array, position, X), "Out_lod": Out_lod}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        (X,), (Out,) = op.inputs["X"], op.outputs["Out"]
        inputs = {"X": [grad(Out)], "I": op.inputs["I"], "X_W": [X]}
        return [OpDesc("read_from_array", inputs, {"Out": [grad(X)]}, op.attrs)]


class ReadFromArray(OpDef, op="read_from_array"):
    """Out = item I of X; zeros of the shape of X_W, if given, for a hole.

    The gradient is an array with Out's gradient as item I. Reference:
    tensor_array_read_write_op.cc.
    """

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads()
    X_lod = reads_lod("X", optional=True)
    I = reads(no_grad=True)  # noqa: E741
    X_W = reads(optional=True, shape_only=True, no_grad=True)
    Out = writes()
    Out_lod = writes_lod("Out")

    def infer(self, s: Slots[TensorType]) -> dict[str, Any]:
        X = s.get("X")
        if X is None:
            return {}
        levels = [TensorType(DType.INT64, (UNKNOWN,))] * len(s.all("X_lod"))
        return {"Out": s.get("X_W") or TensorType(X.dtype, X.shape), "Out_lod": levels}

    def numpy(
        self,
        X: list[Tensor | None],
        X_lod: list[list[Tensor]] | None,
        I: Tensor,  # noqa: E741
        X_W: Shape,
    ) -> dict[str, Any]:
        position = array_index(I)
        Out = item_or_zeros(X, position, X_W)
        return {"Out": Out, "Out_lod": [level[position] for level in X_lod or ()]}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        (X,), (Out,) = op.inputs["X"], op.outputs["Out"]
        inputs = {"X": [grad(Out)], "I": op.inputs["I"]}
        return [OpDesc("write_to_array", inputs, {"Out": [grad(X)]}, op.attrs)]


class LodArrayLength(OpDef, op="lod_array_length"):
    """Out = the number of items of X, including holes. Reference: lod_array_length_op.cc."""

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads(no_grad=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(DType.INT64, (1,))

    def numpy(self, X: list[Tensor | None]) -> Tensor:
        return np.array([len(X)], np.int64)


class TensorArrayToTensor(OpDef, op="tensor_array_to_tensor"):
    """Out = the items of X concatenated along `axis`, or stacked with `use_stack`.

    OutIndex is the size of each item along `axis`. Reference: tensor_array_to_tensor_op.cc.
    """

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads()
    Out = writes()
    OutIndex = writes(optional=True)
    axis = attr(0)
    use_stack = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.get("X")
        index = TensorType(DType.INT32, (UNKNOWN,))
        if X is None:
            return {"OutIndex": index}
        rank = X.rank + int(self.use_stack)
        if not -rank <= self.axis < rank:
            raise ShapeError(f"{self.kind}: axis {self.axis} of items {X} does not exist")
        sizes: list[Size] = list(X.shape)
        position = self.axis % rank
        sizes[position : position + int(not self.use_stack)] = [UNKNOWN]
        return {"Out": TensorType(X.dtype, tuple(sizes)), "OutIndex": index}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(self, X: list[Tensor]) -> dict[str, Tensor]:
        join = np.stack if self.use_stack else np.concatenate
        sizes = [item.shape[self.axis] if self.axis < item.ndim else 1 for item in X]
        return {"Out": join(X, axis=self.axis), "OutIndex": np.array(sizes, np.int32)}

    def grad(self, X: list[Tensor], d_Out: Tensor) -> dict[str, list[Tensor]]:
        if self.use_stack:
            return {"X": list(np.moveaxis(d_Out, self.axis, 0))}
        ends = np.cumsum([item.shape[self.axis] for item in X])
        return {"X": np.split(d_Out, ends[:-1], axis=self.axis)}


# ---- gradients of arrays: not program ops, created by program conversion ------------------------


class AddToArray(OpDef, op="add_to_array"):
    """Out = the previous array with X added to item I; a hole becomes X.

    The counterpart of `write_to_array` for arrays of gradients, which accumulate over all readers.
    """

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads()
    I = reads()  # noqa: E741
    Out = writes()
    Array = reads_previous("Out")

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return appended_type(self.kind, s.get("Array"), s.X)

    def numpy(self, X: Tensor, I: Tensor, Array: list[Tensor | None] | None) -> Any:  # noqa: E741
        position = array_index(I)
        before = item_of(Array or [], position)
        return {"Out": with_item(Array, position, X if before is None else before + X)}


class TakeFromArray(OpDef, op="take_from_array"):
    """Out = item I of X, zeros of the shape of X_W for a hole; XOut = X with item I removed.

    The counterpart of `read_from_array` for arrays of gradients: an overwritten item had no
    gradient before it was written.
    """

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads()
    I = reads()  # noqa: E741
    X_W = reads(shape_only=True)
    Out = writes()
    XOut = writes()

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Out": s.X_W, "XOut": s.X}

    def numpy(self, X: list[Tensor | None], I: Tensor, X_W: Shape) -> dict[str, Any]:  # noqa: E741
        position = array_index(I)
        return {"Out": item_or_zeros(X, position, X_W), "XOut": with_item(X, position, None)}


def appended_type(op: str, array: TensorType | None, item: TensorType) -> TensorType:
    """Return the array type after adding an item; sizes that differ become unknown."""
    if array is None:
        return TensorType(item.dtype, item.shape, is_array=True)
    if array.rank != item.rank:
        raise ShapeError(f"{op}: X is {item}, but the items of the array are {array}")
    pairs = zip(array.shape, item.shape, strict=True)
    sizes = tuple(mine if mine == other else UNKNOWN for mine, other in pairs)
    return TensorType(item.dtype, sizes, is_array=True)


def array_index(index: Tensor) -> int:
    """Return an index tensor as an int; raise ValueError if an array has no such index."""
    position = int(index.item())
    if not 0 <= position < MAX_ARRAY_ITEMS:
        raise ValueError(f"a tensor array index is {position}, expected 0 to {MAX_ARRAY_ITEMS - 1}")
    return position


def item_of(items: Sequence[Any], position: int) -> Any:
    """Return an item, None for a hole or beyond the end.

    >>> item_of(["a", None], 0), item_of(["a", None], 1), item_of(["a", None], 7)
    ('a', None, None)
    """
    return items[position] if position < len(items) else None


def with_item(items: Sequence[Any] | None, position: int, item: Any) -> list[Any]:
    """Return a copy of the list with one item replaced, padded with holes if necessary.

    >>> with_item(["a"], 2, "c")
    ['a', None, 'c']
    """
    result = list(items or ())
    result.extend([None] * (position + 1 - len(result)))
    result[position] = item
    return result


def item_or_zeros(items: Sequence[Any], position: int, shape: Any) -> Any:
    """Return an item, or zeros of `shape` for a hole; raise IndexError if `shape` is None."""
    item: Any = item_of(items, position)
    if item is not None:
        return item
    if shape is None:
        raise IndexError(f"read_from_array: item {position} of the array was never written")
    dtypes = [element.dtype for element in items if element is not None]
    return np.zeros(shape, dtypes[0] if dtypes else "float32")
