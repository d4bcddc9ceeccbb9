"""`set_value`: slice assignment, which Paddle 2 records for `x[1:3] = value`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots, Number
from compiler.ir.opdef.size_comparison import is_not_broadcast, known_to_differ
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.axes import element_type, int_values, normalize_axis
from compiler.ops.shared_kernels import among, broadcast_at, numbers_of
from compiler.ops.type_checks import numeric, require_same_dtype

_LISTS = {
    DType.BOOL.code: "bool_values",
    DType.INT32.code: "int32_values",
    DType.INT64.code: "int64_values",
    DType.FP32.code: "fp32_values",
    DType.FP64.code: "fp64_values",
}
"""Value attribute of each dtype."""


def assigned_index(
    sizes: Shape,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    steps: list[int],
    single: list[int],
) -> tuple[slice, ...]:
    """Return the index of strided slices of some axes with Python semantics; it may be empty.

    A slice from -1 to 0 of an axis in `single` is its last index: the end was computed as start +
    1.
    """
    index = [slice(None)] * len(sizes)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        last = axis in single and (start, end) == (-1, 0)
        index[axis] = slice(start, None if last else end, step)
    return tuple(index)


def value_shape(sizes: Shape, single: list[int], new: list[int]) -> Shape:
    """Return the shape a value is written in: axes of `single` removed, axes of `new` inserted.

    >>> value_shape((1, 3, 2), [0], [1])
    (3, 1, 2)
    """
    removed = [axis % len(sizes) for axis in single]
    remaining = [size for axis, size in enumerate(sizes) if axis not in removed]
    for axis in sorted(new):
        remaining.insert(axis, 1)
    return tuple(remaining) or (1,)


class SetValue(OpDef, op="set_value"):
    """Out = Input with a value assigned to the slices `starts`:`ends`:`steps` of `axes`.

    The value is ValueTensor, or the attribute of its dtype in the shape `shape`; it broadcasts to
    the slices, with the axes of `decrease_axes` removed and those of `none_axes` inserted. Paddle 2
    op; the reference has none.
    """

    Input = reads()
    ValueTensor = reads(optional=True, no_grad=True)
    StartsTensorList = reads(optional=True, many=True, no_grad=True)
    EndsTensorList = reads(optional=True, many=True, no_grad=True)
    StepsTensorList = reads(optional=True, many=True, no_grad=True)
    Out = writes()
    axes = attr_list(int, WIDE)
    starts = attr_list(int, WIDE)
    ends = attr_list(int, WIDE)
    steps = attr_list(int, WIDE)
    decrease_axes = attr_list(int, WIDE)
    none_axes = attr_list(int, WIDE)
    shape = attr_list(int, WIDE)
    dtype = attr(DType.FP32.code)
    bool_values = attr_list(bool)
    fp32_values = attr_list(float)
    fp64_values = attr_list(float, WIDE)
    int32_values = attr_list(int)
    int64_values = attr_list(int, WIDE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Input = s.Input
        ValueTensor, StartsTensorList = s.get("ValueTensor"), s.all("StartsTensorList")
        EndsTensorList, StepsTensorList = s.all("EndsTensorList"), s.all("StepsTensorList")
        for axis in (*self.axes, *self.decrease_axes):
            normalize_axis(self.kind, axis, Input.rank, "axis")
        for name, single in (
            ("starts", StartsTensorList), ("ends", EndsTensorList), ("steps", StepsTensorList)
        ):  # fmt: skip
            self.expect_count(name, len(single or self.attributes[name]))
        if ValueTensor is not None:
            require_same_dtype(self.kind, Input=Input, ValueTensor=ValueTensor)
        else:
            self.expect_values()
        if not (StartsTensorList or EndsTensorList or StepsTensorList):
            self.expect_broadcast(Input, self.shape if ValueTensor is None else ValueTensor.shape)
        return Input

    def expect_broadcast(self, Input: TensorType, value: Sequence[Size]) -> None:
        """Raise ShapeError unless a value broadcasts to the assigned slices."""
        index = assigned_index(
            Input.shape, self.axes, self.starts, self.ends,
            self.steps or [1] * len(self.axes), self.decrease_axes,
        )  # fmt: skip
        lengths = [
            len(range(size)[item]) if isinstance(size, int) else UNKNOWN
            for size, item in zip(Input.shape, index, strict=True)
        ]
        if any(known_to_differ(lengths[axis], 1) for axis in self.decrease_axes):
            found = f"{self.kind}: Input is {Input}"
            raise ShapeError(f"{found}, expected one index of each single axis")
        view = value_shape(tuple(lengths), self.decrease_axes, self.none_axes)
        pairs = zip(reversed(value), reversed(view), strict=False)
        if len(value) > len(view) or any(is_not_broadcast(*pair) for pair in pairs):
            shown = f"[{', '.join(map(str, value))}] to [{', '.join(map(str, view))}]"
            raise ShapeError(f"{self.kind}: a value cannot be broadcast from {shown}")

    def expect_count(self, name: str, given: int) -> None:
        """Raise BadAttribute unless there is one number per axis; missing steps default to 1."""
        if given != len(self.axes) and (name, given) != ("steps", 0):
            raise BadAttribute(
                f"{self.kind}: there are {given} '{name}', expected one for each of {self.axes}"
            )
        if name == "steps" and 0 in self.steps:
            raise BadAttribute(f"{self.kind}: 'steps' is {self.steps}, expected non-zero steps")

    def expect_values(self) -> None:
        """Raise ShapeError unless the attribute of the dtype fills `shape`."""
        values = self.attributes.get(_LISTS.get(self.dtype, ""), [])
        if len(values) != math.prod(self.shape):
            element = DType.of(self.dtype).text
            raise ShapeError(
                f"{self.kind}: {len(values)} values of {element} do not fill {self.shape}"
            )

    def numpy(
        self,
        Input: Array,
        ValueTensor: Array | None,
        StartsTensorList: list[Array] | None,
        EndsTensorList: list[Array] | None,
        StepsTensorList: list[Array] | None,
    ) -> Array:
        starts = int_values(None, StartsTensorList, self.starts)
        ends = int_values(None, EndsTensorList, self.ends)
        steps = int_values(None, StepsTensorList, self.steps or [1] * len(self.axes))
        value = ValueTensor
        if value is None:
            lists = {0: self.bool_values, 2: self.int32_values, 3: self.int64_values}
            listed = self.fp64_values if self.dtype == 6 else self.fp32_values
            value = np.array(lists.get(self.dtype, listed), element_type(self.dtype))
            value = value.reshape(self.shape)
        Out = Input.copy()
        index = assigned_index(Input.shape, self.axes, starts, ends, steps, self.decrease_axes)
        sizes = Out[index].shape
        view = numeric(value_shape(sizes, self.decrease_axes, self.none_axes))
        Out[index] = np.broadcast_to(value, view).reshape(sizes)
        return Out

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input = s.Input
        value = s.get("ValueTensor")
        if value is None:
            value = k.scratch(self.shape or [1], Input.type.dtype)
            numbers_of(k, value, self.attributes[_LISTS[self.dtype]])
        ranges = self.ranges(Input.shape)
        own = k.grid(*Input.shape)
        at, in_range = among(k, own, ranges)
        sizes = tuple(
            size if indices is None else len(indices)
            for size, indices in zip(Input.shape, ranges, strict=True)
        )
        view = value_shape(sizes, self.decrease_axes, self.none_axes)
        if view != sizes:
            at = k.unravel(flat_index(k, at, sizes), view)
        written = value.at(*broadcast_at(value.shape, at), where=in_range, other=0)
        k.store(s.Out, own, written if in_range is None else k.where(in_range, written, Input[own]))

    def ranges(self, sizes: Shape) -> list[range | None]:
        """Return the assigned indices of each axis; None for all of them."""
        steps = self.steps or [1] * len(self.axes)
        single = self.decrease_axes
        cuts = assigned_index(sizes, self.axes, self.starts, self.ends, steps, single)
        return [
            range(size)[cut] if isinstance(size, int) and cut != slice(None) else None
            for size, cut in zip(sizes, cuts, strict=True)
        ]

    def host_only(self, types: Mapping[str, Any]) -> str:
        sizes = types["Input"].shape
        is_open = any(not isinstance(sizes[axis], int) for axis in self.axes)
        return "it slices an axis of symbolic size" * is_open


def flat_index(k: KernelBuilder, indices: Sequence[Number], shape: Shape) -> Number:
    """Return the flat index of an element in a shape."""
    flat: Number = 0
    for index, size in zip(indices, shape, strict=True):
        flat = index + flat * k.size(size)
    return flat
