"""Reverse, flip, roll and crop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, attr_list, reads, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.axes import (
    Sizes,
    int_values,
    normalize_axis,
    positive_or_unknown,
    unknown_shape,
    zeros_shaped,
)
from compiler.ops.math.elementwise import gradient_op
from compiler.ops.shared_kernels import window

# ---- reverse, flip and roll ---------------------------------------------------------------------


def reverse_kernel(
    k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand, axes: Sequence[int]
) -> None:
    """Emit a kernel for Out = X reversed along axes."""
    reversed_axes = {axis % X.type.rank for axis in axes}
    indices = k.grid(*Out.shape)
    from_end = [k.size(size) - 1 - i for i, size in zip(indices, Out.shape, strict=True)]
    k.store(
        Out,
        indices,
        X[tuple(from_end[a] if a in reversed_axes else i for a, i in enumerate(indices))],
    )


def roll_kernel(
    k: KernelBuilder,
    X: DeviceOperand,
    Out: DeviceOperand,
    shifts: Sequence[int],
    axes: Sequence[int],
) -> None:
    """Emit a kernel for Out = X rolled along axes, or flattened and rolled if there are none."""
    shape = Out.shape if axes else (Out.type.numel,)
    indices = k.grid(*shape)
    taken = list(indices)
    for shift, axis in zip(shifts, axes or [0], strict=True):
        # An axis may occur twice; the offset added is never negative.
        size = k.size(shape[axis])
        back = size - k.mod(shift, size) if shift >= 0 else k.mod(-shift, size)
        taken[axis] = k.mod(taken[axis] + back, size)
    k.store(Out.reshaped(shape), indices, X.reshaped(shape)[tuple(taken)])


class Reverse(OpDef, op="reverse"):
    """Out = X reversed along the axes `axis`. Reference: reverse_op.h."""

    lod_source = ""

    X = reads()
    Out = writes()
    axis = attr_list(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        if not self.axis:
            raise BadAttribute("reverse: 'axis' is empty, expected one axis or more")
        for axis in self.axis:
            normalize_axis(self.kind, axis, s.X.rank)
        return s.X

    def numpy(self, X: Array) -> Array:
        return np.flip(X, axis=tuple({axis % X.ndim for axis in self.axis}))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        reverse_kernel(k, s.X, s.Out, self.axis)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        return [gradient_op("reverse", op, grad, {"axis": self.axis})]


class Flip(OpDef, op="flip"):
    """Out = X reversed along the axes `dims`, called `axis` in later models.

    Reference: flip_op.cc.
    """

    X = reads()
    Out = writes()
    dims = attr_list(int)
    axis = attr_list(int, WIDE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        axes = [
            normalize_axis(self.kind, axis, X.rank, "dims: axis") for axis in self.dims or self.axis
        ]
        if not axes or len(set(axes)) != len(axes):
            raise BadAttribute(f"flip: 'dims' is {self.dims}, expected axes of X {X}, each once")
        return X

    def numpy(self, X: Array) -> Array:
        return np.flip(X, axis=tuple(self.dims or self.axis))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        reverse_kernel(k, s.X, s.Out, self.dims or self.axis)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        return [gradient_op("flip", op, grad, {"dims": self.dims or self.axis})]


class Roll(OpDef, op="roll"):
    """Out = X rolled circularly by `shifts` along the axes `dims`.

    Without axes X is rolled as if flattened. Later models call the axes `axis` and may pass the
    shifts as a tensor. Reference: roll_op.h.
    """

    X = reads()
    ShiftsTensor = reads(optional=True, no_grad=True)
    Out = writes()
    shifts = attr_list(int, WIDE)
    dims = attr_list(int, WIDE)
    axis = attr_list(int, WIDE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        axes = self.dims or self.axis
        for axis in axes:
            normalize_axis(self.kind, axis, s.X.rank, "dims: axis")
        if s.get("ShiftsTensor") is None and len(self.shifts) != (len(axes) or 1):
            raise BadAttribute(f"roll: 'shifts' is {self.shifts}, expected one for each of {axes}")
        return s.X

    def numpy(self, X: Array, ShiftsTensor: Array | None) -> Array:
        shifts, axes = int_values(ShiftsTensor, None, self.shifts), self.dims or self.axis
        return np.roll(X, shifts, axes) if axes else np.roll(X, shifts[0])

    def grad(self, X: Shape, ShiftsTensor: Array | None, d_Out: Array) -> dict[str, Array]:
        shifts = [-shift for shift in int_values(ShiftsTensor, None, self.shifts)]
        axes = self.dims or self.axis
        return {"X": np.roll(d_Out, shifts, axes) if axes else np.roll(d_Out, shifts[0])}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        roll_kernel(k, s.X, s.Out, self.shifts, self.dims or self.axis)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        roll_kernel(k, s.d_Out, s.d_X, [-shift for shift in self.shifts], self.dims or self.axis)


# ---- crops --------------------------------------------------------------------------------------


def crop_index(sizes: Sizes, offsets: list[int], lengths: list[int]) -> tuple[slice, ...]:
    """Return the index of a crop; raise ValueError if it is out of range."""
    for size, offset, length in zip(sizes, offsets, lengths, strict=True):
        if offset < 0 or length < 1 or offset + length > size:
            raise ValueError(f"crop: {length} elements from {offset} exceed an axis of size {size}")
    parts = zip(offsets, lengths, strict=True)
    return tuple(slice(offset, offset + length) for offset, length in parts)


def crop_shape(X: TensorType, op: str, lengths: Sequence[Size], offsets: Sequence[int]) -> Shape:
    """Return the crop's shape; raise ShapeError unless it fits in X."""
    error = ShapeError(f"{op}: {list(lengths)} from {list(offsets)} exceeds X {X}")
    if len(lengths) != X.rank or len(offsets) not in (0, X.rank):
        raise error
    for size, offset, length in zip(X.shape, offsets, lengths, strict=False):
        if offset < 0 or is_less(length, 1) or is_less(size, length + offset):
            raise error
    return tuple(lengths)


class Crop(OpDef, op="crop"):
    """Out = the crop of X that starts at `offsets` and has the shape of Y, or `shape`.

    A size of -1 is that of X. Offsets overrides `offsets` at run time. Reference: crop_op.h.
    """

    X = reads()
    Y = reads(optional=True, shape_only=True, no_grad=True)
    Offsets = reads(optional=True, no_grad=True)
    Out = writes()
    offsets = attr_list(int)
    shape = attr_list(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        Y, Offsets = s.get("Y"), s.get("Offsets")
        sizes = list(Y.shape) if Y else [*self.shape]
        whole = [X.shape[a] if n == -1 and a < X.rank else n for a, n in enumerate(sizes)]
        if Offsets is None and len(self.offsets) != X.rank:
            raise BadAttribute(f"crop: 'offsets' is {self.offsets}, expected one per axis of X {X}")
        return X.with_shape(crop_shape(X, self.kind, whole, [] if Offsets else self.offsets))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        crop_shape(
            s.X, self.kind + "_grad", s.d_Out.shape, [] if s.get("Offsets") else self.offsets
        )
        return {"X": s.X}

    def numpy(self, X: Array, Y: Shape, Offsets: Array | None) -> Array:
        wanted: Sizes = Y or tuple(self.shape)
        lengths = [size if n == -1 else n for n, size in zip(wanted, X.shape, strict=True)]
        return X[crop_index(X.shape, int_values(Offsets, None, self.offsets), lengths)]

    def grad(self, X: Shape, Offsets: Array | None, d_Out: Array) -> dict[str, Array]:
        d_X = zeros_shaped(X, d_Out)
        offsets = int_values(Offsets, None, self.offsets)
        d_X[crop_index(d_X.shape, offsets, list(d_Out.shape))] = d_Out
        return {"X": d_X}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        window(k, s.X, s.Out, self.offsets)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        window(k, s.d_Out, s.d_X, [-offset for offset in self.offsets])


class CropInputs(OpDef):
    """The inputs of `crop_tensor`: numbers as attributes, in one tensor, or in one tensor each."""

    overridden_sizes: ClassVar[Mapping[str, str]] = {"Shape": "shape", "ShapeTensor": "shape"}

    X = reads()
    Shape = reads(optional=True, no_grad=True)
    Offsets = reads(optional=True, no_grad=True)
    ShapeTensor = reads(optional=True, many=True, no_grad=True)
    OffsetsTensor = reads(optional=True, many=True, no_grad=True)
    Out = writes()
    offsets = attr_list(int)
    shape = attr_list(int)


class CropTensor(CropInputs, op="crop_tensor"):
    """Out = the crop of X that starts at `offsets` and has the sizes `shape`; -1 is the remainder.

    Reference: crop_tensor_op.h.
    """

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        from_tensor = s.get("Offsets") is not None or bool(s.all("OffsetsTensor"))
        if s.get("Shape") is not None or s.all("ShapeTensor"):
            sizes = (
                positive_or_unknown(self.shape)
                if len(self.shape) == X.rank
                else unknown_shape(X.rank)
            )
            return X.with_shape(crop_shape(X, self.kind, sizes, []))
        if 0 in self.shape or (not from_tensor and len(self.offsets) != X.rank):
            raise BadAttribute(f"crop_tensor: 'shape' is {self.shape}, 'offsets' {self.offsets}")
        lengths = [self.length(X, axis, from_tensor) for axis in range(len(self.shape))]
        return X.with_shape(crop_shape(X, self.kind, lengths, [] if from_tensor else self.offsets))

    def length(self, X: TensorType, axis: int, from_tensor: bool) -> Size:
        """Return the size of Out at an axis from the attribute."""
        if self.shape[axis] != -1 or axis >= X.rank:
            return self.shape[axis]
        return UNKNOWN if from_tensor else X.shape[axis] - self.offsets[axis]

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        offsets = [] if s.get("Offsets") or s.all("OffsetsTensor") else self.offsets
        crop_shape(s.X, f"{self.kind}_grad", s.d_Out.shape, offsets)
        return {"X": s.X}

    def numpy(
        self,
        X: Array,
        Shape: Array | None,
        Offsets: Array | None,
        ShapeTensor: list[Array] | None,
        OffsetsTensor: list[Array] | None,
    ) -> Array:
        offsets = int_values(Offsets, OffsetsTensor, self.offsets)
        wanted = int_values(Shape, ShapeTensor, self.shape)
        rest = [size - offset for size, offset in zip(X.shape, offsets, strict=True)]
        lengths = [left if n == -1 else n for n, left in zip(wanted, rest, strict=True)]
        return X[crop_index(X.shape, offsets, lengths)]

    def grad(
        self, X: Shape, Offsets: Array | None, OffsetsTensor: list[Array] | None, d_Out: Array
    ) -> dict[str, Array]:
        d_X = zeros_shaped(X, d_Out)
        offsets = int_values(Offsets, OffsetsTensor, self.offsets)
        d_X[crop_index(d_X.shape, offsets, list(d_Out.shape))] = d_Out
        return {"X": d_X}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        window(k, s.X, s.Out, self.offsets)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        window(k, s.d_Out, s.d_X, [-offset for offset in self.offsets])
