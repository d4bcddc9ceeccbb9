"""Resizing of images: nearest, linear, bilinear, trilinear and bicubic, in the 1.x and 2.x ops.

The `_v2` ops of Paddle 2.x take a list of scales and step by their inverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, Types, attr, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.image import interpolate_kernels
from compiler.ops.image.interpolate_kernels import Resampling
from compiler.ops.image.interpolate_numpy import (
    axis_scales,
    image_sizes,
    requested_sizes,
    resize,
    resize_gradient,
)
from compiler.ops.image.layouts import channels_first, in_layout, permuted_layout

METHODS = {1: ("linear",), 2: ("bilinear", "nearest", "bicubic"), 3: ("trilinear",)}
"""Allowed values of `interp_method`, by the number of image axes."""
EXACT = 4096
"""Scales with a denominator below this yield the reference's single-precision sizes."""


class Interpolation(OpDef):
    """Out = X resampled to other image sizes.

    X is [N, C, …], or […, C] with data_layout NHWC; `interp_method` is one of those for that number
    of axes, whatever the name of the op. The sizes are those of SizeTensor (one tensor per axis) or
    OutSize, or the input sizes times Scale or the attribute `scale`, or out_d, out_h, out_w. With
    `align_corners` the corner elements coincide; otherwise, for (bi-, tri-)linear, `align_mode` 0
    aligns the whole images, and 1 their first elements. Reference: interpolate_op.cc.
    """

    methods: ClassVar[Mapping[int, tuple[str, ...]]] = METHODS
    size_inputs: ClassVar[tuple[str, ...]] = ("SizeTensor", "OutSize")
    X = reads()
    OutSize = reads(optional=True, no_grad=True, sizes_only=True)
    SizeTensor = reads(optional=True, many=True, no_grad=True, sizes_only=True)
    Scale = reads(optional=True, no_grad=True)
    Out = writes(shares_lod=False)
    data_layout = attr("NCHW")
    out_d = attr(0)
    out_h = attr(0)
    out_w = attr(0)
    interp_method = attr("bilinear")
    align_corners = attr(True)
    align_mode = attr(1)

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        return permuted_layout("data_layout", self.data_layout, order, "X", "Out")

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        SizeTensor = s.all("SizeTensor")
        axes = X.rank - 2
        self.require_method(X, axes)
        if self.align_mode not in (0, 1):
            raise BadAttribute(f"{self.kind}: align_mode is {self.align_mode}, expected 0 or 1")
        if SizeTensor and len(SizeTensor) != axes:
            raise ShapeError(f"{self.kind}: {len(SizeTensor)} in SizeTensor, expected one per axis")
        batch, channels, *sizes = channels_first(self.data_layout, X.shape)
        if any(is_less(size, 1) for size in sizes):
            raise ShapeError(f"{self.kind}: X is {X}, expected images of one element or more")
        has_size_input = SizeTensor or s.get("OutSize") is not None or s.get("Scale") is not None
        output_sizes = [UNKNOWN] * axes if has_size_input else self.sizes(sizes)
        return X.with_shape(in_layout(self.data_layout, (batch, channels, *output_sizes)))

    def resized(self, X: TensorType, sizes: Sequence[Size]) -> TensorType:
        """Return the type of Out for the sizes that the inputs ask for."""
        batch, channels, *_ = channels_first(self.data_layout, X.shape)
        return X.with_shape(in_layout(self.data_layout, (batch, channels, *sizes)))

    def require_method(self, X: TensorType, axes: int) -> None:
        """Raise ShapeError unless X is images, BadAttribute if the method has another rank."""
        if axes not in METHODS:
            raise ShapeError(f"{self.kind}: X is {X}, expected 3 to 5 axes: a batch of images")
        valid = self.methods[axes]
        if self.interp_method not in valid:
            actual = f"{self.kind}: interp_method is {self.interp_method!r}"
            requested = " or ".join([", ".join(valid[:-1]), valid[-1]] if len(valid) > 1 else valid)
            raise BadAttribute(f"{actual}, expected {requested} for images of {axes} axes")

    def sizes(self, sizes: Sequence[Size]) -> list[Size]:
        """Return the output sizes from the attributes; raises BadAttribute if they define none."""
        factors = axis_scales(self.attributes["scale"], len(sizes))
        if factors:
            return [_scaled(size, by) for size, by in zip(sizes, factors, strict=True)]
        requested = [self.out_d, self.out_h, self.out_w][-len(sizes) :]
        if min(requested) < 1:
            actual = f"{self.kind}: the sizes of the output are {requested}"
            raise BadAttribute(f"{actual}, expected sizes of at least 1, or a scale")
        return [*requested]

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def steps(self, axes: int) -> list[float]:
        """Return the scale of each axis from the attributes; empty if the sizes define it."""
        return []

    def resampling(self, X: TensorType, Out: TensorType) -> list[Resampling]:
        """Return the axes for the device kernels, from the types of input and output."""
        method = (self.interp_method, self.align_corners, self.align_mode)
        sizes, counts = (
            image_sizes(tensor_type.shape, self.data_layout) for tensor_type in (X, Out)
        )
        steps, is_wide = self.steps(len(sizes)), X.dtype is DType.FP64
        return interpolate_kernels.axes_of(sizes, counts, method, steps, is_wide)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        axes = self.resampling(s.X.type, s.Out.type)
        interpolate_kernels.resize(k, self.data_layout, axes, s.X, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        axes = self.resampling(s.d_X.type, s.d_Out.type)
        interpolate_kernels.resize_gradient(k, self.data_layout, axes, s.d_Out, s.d_X)


def _scaled(size: Size, factor: float) -> Size:
    """Return a size times a factor, truncated to an integer."""
    if isinstance(size, int):
        return int(np.float32(size) * np.float32(factor))
    numerator, denominator = factor.as_integer_ratio()
    return size * numerator // denominator if denominator < EXACT else UNKNOWN


class PlainInterpolation(Interpolation):
    """The ops of 1.x: one `scale` for all axes, which only defines the sizes."""

    scale = attr(0.0)

    def numpy(
        self,
        X: Array,
        OutSize: Array | None,
        SizeTensor: list[Array] | None,
        Scale: Array | None,
    ) -> Array:
        sizes = image_sizes(X.shape, self.data_layout)
        requested = [self.out_d, self.out_h, self.out_w][-len(sizes) :]
        scale = self.scale if Scale is None else Scale
        output_sizes = requested_sizes(sizes, requested, scale, SizeTensor, OutSize)
        method = (self.interp_method, self.align_corners, self.align_mode)
        return resize(X, self.data_layout, output_sizes, method, [])

    def grad(
        self,
        X: Shape,
        OutSize: Array | None,
        SizeTensor: list[Array] | None,
        Scale: Array | None,
        d_Out: Array,
    ) -> dict[str, Array]:
        method = (self.interp_method, self.align_corners, self.align_mode)
        sizes = image_sizes(X, self.data_layout)
        return {"X": resize_gradient(d_Out, self.data_layout, sizes, method, [])}


class ScaledInterpolation(Interpolation):
    """The ops of 2.x: a `scale` for each axis, whose inverse is the step in the input."""

    scale = attr_list(float)

    def steps(self, axes: int) -> list[float]:
        return axis_scales(self.scale, axes)

    def host_only(self, types: Mapping[str, object]) -> str:
        """The reason why kernels must not step by `scale`."""
        overruled = bool(types.get("SizeTensor")) and bool(self.steps(1))
        return "SizeTensor overrules its scale" if overruled else ""

    def numpy(
        self,
        X: Array,
        OutSize: Array | None,
        SizeTensor: list[Array] | None,
        Scale: Array | None,
    ) -> Array:
        sizes = image_sizes(X.shape, self.data_layout)
        requested = [self.out_d, self.out_h, self.out_w][-len(sizes) :]
        scale = self.scale if Scale is None else Scale
        output_sizes = requested_sizes(sizes, requested, scale, SizeTensor, OutSize)
        method = (self.interp_method, self.align_corners, self.align_mode)
        factors = [] if SizeTensor else axis_scales(scale, len(sizes))
        return resize(X, self.data_layout, output_sizes, method, factors)

    def grad(
        self,
        X: Shape,
        OutSize: Array | None,
        SizeTensor: list[Array] | None,
        Scale: Array | None,
        d_Out: Array,
    ) -> dict[str, Array]:
        method = (self.interp_method, self.align_corners, self.align_mode)
        sizes = image_sizes(X, self.data_layout)
        scale = self.scale if Scale is None else Scale
        factors = [] if SizeTensor else axis_scales(scale, len(sizes))
        return {"X": resize_gradient(d_Out, self.data_layout, sizes, method, factors)}


class NearestInterp(PlainInterpolation, op="nearest_interp"):
    """Nearest-neighbour resizing of 2-D images."""

    interp_method = attr("nearest")


class BilinearInterp(PlainInterpolation, op="bilinear_interp"):
    """Bilinear resizing of 2-D images: linear between the four neighbours."""


class BicubicInterp(PlainInterpolation, op="bicubic_interp"):
    """Bicubic resizing of 2-D images: cubic through the sixteen neighbours."""

    interp_method = attr("bicubic")


class LinearInterp(PlainInterpolation, op="linear_interp"):
    """Linear resizing of rows [N, C, W]."""

    interp_method = attr("linear")


class TrilinearInterp(PlainInterpolation, op="trilinear_interp"):
    """Trilinear resizing of volumes: linear between the eight neighbours."""

    interp_method = attr("trilinear")


class NearestInterpV2(ScaledInterpolation, op="nearest_interp_v2"):
    """`nearest_interp` of 2.x."""

    interp_method = attr("nearest")


class BilinearInterpV2(ScaledInterpolation, op="bilinear_interp_v2"):
    """`bilinear_interp` of 2.x."""


class BicubicInterpV2(ScaledInterpolation, op="bicubic_interp_v2"):
    """`bicubic_interp` of 2.x."""

    interp_method = attr("bicubic")


class LinearInterpV2(ScaledInterpolation, op="linear_interp_v2"):
    """`linear_interp` of 2.x."""

    interp_method = attr("linear")


class TrilinearInterpV2(ScaledInterpolation, op="trilinear_interp_v2"):
    """`trilinear_interp` of 2.x."""

    interp_method = attr("trilinear")
