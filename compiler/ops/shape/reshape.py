"""Reshape, flatten, squeeze and unsqueeze: ops that change the shape only.

Most have two versions. The later one, `reshape2` etc., has a second output XShape of shape
(0, *X.shape) without data, so that the gradient needs no other information about X.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Share, Slots, Types, Value, attr, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.axes import (
    Sizes,
    int_values,
    normalize_axis,
    positive_or_unknown,
    static_count,
    unknown_shape,
)
from compiler.ops.shared_kernels import copy
from compiler.ops.type_checks import differ, require_same_count


class SameElements(OpDef):
    """Out has the elements of X in order; a no-op if both share memory."""

    is_cheap = True
    computes_in_fp32 = False

    X = reads()
    Out = writes(inplace="X")

    def shares(self, types: Types) -> list[Share]:
        """Return Out as a view of X."""
        return [Share(("X", 0), ("Out", 0))]

    def shares_grad(self, types: Types) -> list[Share]:
        """Return X's gradient as a view of Out's."""
        return [Share(("Out@GRAD", 0), ("X@GRAD", 0))]

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        Out = s.get("Out")
        if Out is not None and not k.aliased(X, Out):
            k.line(f"np.copyto({Out.view(X.shape)}, {X})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        d_Out, d_X = s.d_Out, s.d_X
        if not k.aliased(d_Out, d_X):
            k.line(f"np.copyto({d_X.view(d_Out.shape)}, {d_Out})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        if (Out := s.get("Out")) is not None:
            copy(k, s.X, Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        copy(k, s.d_Out, s.d_X)


class GradientByX:
    """The gradient of the first version, with the shape taken from X."""

    kind: str

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        require_same_count(f"{self.kind}_grad", **{"X": s.X, "Out@GRAD": s.d_Out})
        return {"X": s.X}

    def grad(self, X: Shape, d_Out: Value) -> dict[str, Value]:
        return {"X": d_Out.reshape(X)}


class GradientByXShape:
    """The gradient of the later version, with the shape taken from XShape."""

    kind: str

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.d_Out.with_shape(s.XShape.shape[1:])
        require_same_count(f"{self.kind}_grad", **{"X": X, "Out@GRAD": s.d_Out})
        return {"X": X}

    def grad(self, XShape: Shape, d_Out: Value) -> dict[str, Value]:
        return {"X": d_Out.reshape(XShape[1:])}


def with_xshape(X: Array, Out: Array) -> dict[str, Array]:
    """Return both outputs of the later version."""
    return {"Out": Out, "XShape": np.empty((0, *X.shape), X.dtype)}


def with_xshape_type(X: TensorType, shape: Shape) -> dict[str, TensorType]:
    """Return the types of both outputs of the later version."""
    return {"Out": X.with_shape(shape), "XShape": X.with_shape((0, *X.shape))}


# ---- reshape ------------------------------------------------------------------------------------


def resolve_zeros(sizes: Sizes, wanted: list[int]) -> list[int]:
    """Return the target sizes, with each 0 replaced by X's size at that axis."""
    return [size if size else sizes[axis] for axis, size in enumerate(wanted)]


def check_sizes(numbers: Array, sizes: Sizes) -> None:
    """Raise ValueError if a shape tensor differs from the sizes compiled for."""
    shape = [int(number) for number in numbers.reshape(-1)]
    if len(shape) != len(sizes) or any(n > 0 and n != s for n, s in zip(shape, sizes, strict=True)):
        raise ValueError(f"reshape: the sizes are {shape}, expected {list(sizes)} as declared")


class ShapeInputs(SameElements):
    """The inputs of both versions of reshape."""

    size_inputs: ClassVar[tuple[str, ...]] = ("Shape", "ShapeTensor")
    overridden_sizes: ClassVar[Mapping[str, str]] = {"ShapeTensor": "shape"}

    Shape = reads(optional=True, no_grad=True, sizes_only=True)
    ShapeTensor = reads(optional=True, many=True, no_grad=True, sizes_only=True)
    shape = attr_list(int)

    def resized(self, X: TensorType, sizes: Sequence[Size]) -> TensorType:
        """Return the type of Out for the sizes that the inputs ask for."""
        resolved = [X.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
        rest = X.numel // product(size for size in resolved if size != -1)
        return X.with_shape([rest if size == -1 else size for size in resolved])


class Reshaping(ShapeInputs):
    """Out = the elements of X in the shape `shape`, or in a shape given by tensors.

    A 0 keeps the size of X at that axis; one -1 is inferred. Shape lists all sizes, ShapeTensor has
    one tensor per size; the attribute then holds what is known at compile time. Reference:
    reshape_op.cc.
    """

    linear_in = (("X",),)

    def result(self, X: TensorType, listing: TensorType | None, single: list[TensorType]) -> Shape:
        """Return the shape of Out; raise ShapeError if the number of elements differs."""
        if listing is None and not single:
            return self.wanted(X)
        if not self.shape:
            count = static_count(self.kind, "Shape", listing) if listing else len(single)
            return unknown_shape(count)
        resolved = [X.shape[a] if n == 0 and a < X.rank else n for a, n in enumerate(self.shape)]
        return positive_or_unknown([size if isinstance(size, int) else -1 for size in resolved])

    def wanted(self, X: TensorType) -> Shape:
        """Return the shape given by the attribute."""
        copied = [axis for axis, size in enumerate(self.shape) if size == 0]
        error = ShapeError(f"{self.kind}: X is {X}, which 'shape' {self.shape} does not fit")
        odd = self.shape.count(-1) > 1 or any(size < -1 for size in self.shape)
        if not self.shape or odd or any(axis >= X.rank for axis in copied):
            raise error
        rest = product(size for axis, size in enumerate(X.shape) if axis not in copied)
        sizes: list[Size] = [X.shape[a] if a in copied else n for a, n in enumerate(self.shape)]
        if -1 in self.shape:
            divisor = math.prod(size for size in self.shape if size > 0)
            sizes[self.shape.index(-1)] = rest // divisor
        if differ(product(sizes), X.numel):
            raise error
        return tuple(sizes)

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out, Shape = s.get("Out"), s.get("Shape")
        if Shape is not None and Out is not None:
            sizes = "".join(f"{size}, " for size in Out.shape)
            k.line(f"{k.function(check_sizes)}({Shape}, ({sizes}))")
        super().lower(k, s)


class Reshape(GradientByX, Reshaping, op="reshape"):
    """`Reshaping` with one output."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X.with_shape(self.result(s.X, s.get("Shape"), s.all("ShapeTensor")))

    def numpy(self, X: Array, Shape: Array | None, ShapeTensor: list[Array] | None) -> Array:
        return X.reshape(resolve_zeros(X.shape, int_values(Shape, ShapeTensor, self.shape)))


class Reshape2(GradientByXShape, Reshaping, op="reshape2"):
    """`Reshaping` with XShape."""

    XShape = writes(shares_level=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return with_xshape_type(s.X, self.result(s.X, s.get("Shape"), s.all("ShapeTensor")))

    def numpy(
        self, X: Array, Shape: Array | None, ShapeTensor: list[Array] | None
    ) -> dict[str, Array]:
        sizes = resolve_zeros(X.shape, int_values(Shape, ShapeTensor, self.shape))
        return with_xshape(X, X.reshape(sizes))


# ---- flatten ------------------------------------------------------------------------------------


def as_matrix(sizes: Sizes, axis: int) -> tuple[int, int]:
    """Return the products of the sizes before an axis and from it on."""
    return int(np.prod(sizes[:axis])), int(np.prod(sizes[axis:]))


class Flattening(SameElements):
    """Out is a matrix: the axes of X before `axis` are its rows, the others its columns.

    Reference: flatten_op.cc.
    """

    linear_in = (("X",),)
    axis = attr(1)

    def result(self, X: TensorType) -> Shape:
        """Return the shape of Out; raise ShapeError if `axis` is out of range."""
        if not 0 <= self.axis <= X.rank:
            raise ShapeError(f"{self.kind}: 'axis' is {self.axis}, expected 0 to {X.rank} for {X}")
        return product(X.shape[: self.axis]), product(X.shape[self.axis :])


class Flatten(GradientByX, Flattening, op="flatten"):
    """`Flattening` with one output."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X.with_shape(self.result(s.X))

    def numpy(self, X: Array) -> Array:
        return X.reshape(as_matrix(X.shape, self.axis))


class Flatten2(GradientByXShape, Flattening, op="flatten2"):
    """`Flattening` with XShape."""

    XShape = writes(shares_level=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return with_xshape_type(s.X, self.result(s.X))

    def numpy(self, X: Array) -> dict[str, Array]:
        return with_xshape(X, X.reshape(as_matrix(X.shape, self.axis)))


def merge_axes(sizes: Sizes, start: int, stop: int) -> Sizes:
    """Return the sizes with the axes `start` to `stop` inclusive merged."""
    first, last = start % len(sizes), stop % len(sizes)
    return (*sizes[:first], int(np.prod(sizes[first : last + 1])), *sizes[last + 1 :])


class FlattenContiguousRange(GradientByXShape, SameElements, op="flatten_contiguous_range"):
    """Out = X with the axes `start_axis` to `stop_axis` merged.

    Paddle 2 op, for models saved there.
    """

    XShape = writes(optional=True, shares_level=True)
    start_axis = attr(1)
    stop_axis = attr(1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        first = normalize_axis(self.kind, self.start_axis, X.rank, "start_axis")
        last = normalize_axis(self.kind, self.stop_axis, X.rank, "stop_axis")
        if first > last:
            raise ShapeError(f"{self.kind}: start_axis {first} exceeds stop_axis {last}")
        size = product(X.shape[first : last + 1])
        return with_xshape_type(X, (*X.shape[:first], size, *X.shape[last + 1 :]))

    def numpy(self, X: Array) -> dict[str, Array]:
        return with_xshape(X, X.reshape(merge_axes(X.shape, self.start_axis, self.stop_axis)))


# ---- squeeze and unsqueeze ----------------------------------------------------------------------


def squeezed(sizes: Sizes, axes: list[int]) -> Sizes:
    """Return the sizes without those of `axes`, or without all 1s if `axes` is empty."""
    removed = [axis % len(sizes) for axis in axes]
    mask = [size != 1 if not removed else axis not in removed for axis, size in enumerate(sizes)]
    return tuple(size for size, stays in zip(sizes, mask, strict=True) if stays)


class Squeezing(SameElements):
    """Out = X without the `axes`, which have size 1, or without all such axes if `axes` is empty.

    An axis of unknown size is kept. Reference: squeeze_op.cc.
    """

    linear_in = (("X",),)
    axes = attr_list(int)

    def result(self, X: TensorType) -> Shape:
        """Return the shape of Out; raise ShapeError if a squeezed axis is not of size 1."""
        for axis in self.axes:
            size = X.shape[normalize_axis(self.kind, axis, X.rank, "axes: axis")]
            if isinstance(size, int) and size != 1:
                raise ShapeError(f"{self.kind}: X is {X}, expected size 1 at axis {axis}")
        return squeezed(X.shape, self.axes)


class Squeeze(GradientByX, Squeezing, op="squeeze"):
    """`Squeezing` with one output."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X.with_shape(self.result(s.X))

    def numpy(self, X: Array) -> Array:
        return X.reshape(squeezed(X.shape, self.axes))


class Squeeze2(GradientByXShape, Squeezing, op="squeeze2"):
    """`Squeezing` with XShape."""

    XShape = writes(shares_level=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return with_xshape_type(s.X, self.result(s.X))

    def numpy(self, X: Array) -> dict[str, Array]:
        return with_xshape(X, X.reshape(squeezed(X.shape, self.axes)))


def unsqueezed(sizes: Sizes, axes: Sequence[int]) -> Sizes:
    """Return the sizes with a 1 inserted at each of `axes`, in order."""
    result = list(sizes)
    for axis in axes:
        if not -len(result) - 1 <= axis <= len(result):
            raise ValueError(f"axis {axis} is out of range for rank {len(result)}")
        result.insert(axis if axis >= 0 else axis + len(result) + 1, 1)
    return tuple(result)


class Unsqueezing(SameElements):
    """Out = X with an axis of size 1 inserted at each of `axes`, in order.

    Without `axes` they come from one tensor, or from one tensor each. Reference: unsqueeze_op.cc.
    """

    linear_in = (("X",),)
    AxesTensor = reads(optional=True, no_grad=True)
    AxesTensorList = reads(optional=True, many=True, no_grad=True)
    axes = attr_list(int)

    def result(self, X: TensorType, listing: TensorType | None, single: list[TensorType]) -> Shape:
        """Return the shape of Out; raise ShapeError if an axis is out of range."""
        if listing is not None and not self.axes:
            return unknown_shape(X.rank + static_count(self.kind, "AxesTensor", listing))
        if single and not self.axes:
            return unknown_shape(X.rank + len(single))
        try:
            return unsqueezed(X.shape, self.axes)
        except ValueError as error:
            raise ShapeError(f"{self.kind}: X is {X}, and 'axes' {self.axes}: {error}") from None


class Unsqueeze(GradientByX, Unsqueezing, op="unsqueeze"):
    """`Unsqueezing` with one output."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X.with_shape(self.result(s.X, s.get("AxesTensor"), s.all("AxesTensorList")))

    def numpy(
        self, X: Array, AxesTensor: Array | None, AxesTensorList: list[Array] | None
    ) -> Array:
        axes = self.axes or int_values(AxesTensor, AxesTensorList, [])
        return X.reshape(unsqueezed(X.shape, axes))


class Unsqueeze2(GradientByXShape, Unsqueezing, op="unsqueeze2"):
    """`Unsqueezing` with XShape."""

    XShape = writes(shares_level=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return with_xshape_type(s.X, self.result(s.X, s.get("AxesTensor"), s.all("AxesTensorList")))

    def numpy(
        self, X: Array, AxesTensor: Array | None, AxesTensorList: list[Array] | None
    ) -> dict[str, Array]:
        axes = self.axes or int_values(AxesTensor, AxesTensorList, [])
        return with_xshape(X, X.reshape(unsqueezed(X.shape, axes)))
