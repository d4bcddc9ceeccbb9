"""Layers of quantized models in 8 bits, which the compiler makes of layers on levels in float32.

Sums are integers of 32 bits, rounded once to float32. Programs do not name these ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Pointwise, Slots, Value, Xp, attr, reads, required, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.image.conv import Convolution
from compiler.ops.image.conv_kernels import convolve, expect_channels
from compiler.ops.image.conv_numpy import convolution
from compiler.ops.image.layouts import to_layout, view_channels_first, view_filters_first
from compiler.ops.image.window_attributes import image_windows
from compiler.ops.math.matmul import Mul, as_matrix
from compiler.ops.quantize.levels import BITS, level_count, require_float
from compiler.ops.type_checks import require_dtype


class QuantizeToInt8(Pointwise, op="quantize_to_int8"):
    """Out = the level of each element by a scale known at compile time, int8; clipped.

    The levels are those of `fake_quantize_moving_average_abs_max` with `is_test`; that of NaN is
    unspecified.
    """

    X = reads()
    Out = writes()
    scale = required(float)
    bit_length = attr(8, BITS)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shape of X in int8; raises ShapeError unless X holds floats."""
        require_float(self.kind, "X", types["X"])
        return {"Out": types["X"].with_dtype(DType.INT8)}

    def compute(self, xp: Xp, X: Value) -> Value:
        clipped = xp.minimum(xp.maximum(X, -self.scale), self.scale)
        return xp.astype(xp.rint(clipped * self.factor), np.int8)

    @property
    def factor(self) -> float:
        """Levels for each unit of X, as `levels.quantized` computes it in float32."""
        scale = np.float32(self.scale)
        inverse = np.float32(1) / (scale + np.float32(1e-6) if scale <= 1e-30 else scale)
        return float(inverse * np.float32(level_count(self.bit_length)))


class QuantizedConv2d(Convolution, op="quantized_conv2d"):
    """`conv2d` of int8 Input and Filter; Output is float32, of sums in integers."""

    gaps: ClassVar[frozenset[str]] = frozenset({"Input", "Output"})

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_dtype(self.kind, "Input", s.Input, DType.INT8)
        require_dtype(self.kind, "Filter", s.Filter, DType.INT8)
        wide = (tensor_type.with_dtype(DType.FP32) for tensor_type in (s.Input, s.Filter))
        return self.output(*wide)

    def numpy(self, Input: Array, Filter: Array) -> Array:
        images = view_channels_first(self.data_format, Input).astype(np.float64)
        filters = view_filters_first(self.filter_format, Filter).astype(np.float64)
        sliding = (self.strides, self.paddings, self.dilations, self.padding_algorithm)
        windows = image_windows(images.shape[2:], filters.shape[2:], *sliding)
        sums = convolution(images, filters, windows, self.groups)
        return to_layout(self.data_format, sums).astype(np.float32)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Input, Filter, Output = s.Input, s.Filter, s.Output
        g = self.geometry(Input, Filter)
        expect_channels(k, g, Input, Filter, Output)
        if not k.convolution(g, Input, Filter, Output):
            convolve(k, g, _widened(k, Input), _widened(k, Filter), Output)


def _widened(k: KernelBuilder, levels: DeviceOperand) -> DeviceOperand:
    """Emit a kernel that copies levels to float32."""
    wide = k.scratch(levels.shape, DType.FP32)
    indices = k.grid(*levels.shape)
    k.store(wide, indices, k.astype(levels[indices], DType.FP32))
    return wide


class QuantizedMul(OpDef, op="quantized_mul"):
    """`mul` of int8 X and Y; Out is float32, of sums in integers."""

    epilogue = "Out"

    X = reads()
    Y = reads()
    Out = writes()
    x_num_col_dims = attr(1)
    y_num_col_dims = attr(1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_dtype(self.kind, "X", s.X, DType.INT8)
        return Mul(self.attributes).infer(s).with_dtype(DType.FP32)

    def multiplications(self, shapes: Mapping[str, Shape]) -> Size:
        """Return the number of multiplications for Out, from the shapes of X and Y."""
        return Mul(self.attributes).multiplications(shapes)

    def numpy(self, X: Array, Y: Array) -> Array:
        x, y = as_matrix(X, self.x_num_col_dims), as_matrix(Y, self.y_num_col_dims)
        shape = X.shape[: self.x_num_col_dims] + Y.shape[self.y_num_col_dims :]
        sums = np.matmul(x.astype(np.float64), y.astype(np.float64))
        return sums.astype(np.float32).reshape(shape)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        views = Mul(self.attributes).views(s.X.shape, s.Y.shape)
        k.matmul(
            *(operand.reshaped(views[n]) for n, operand in (("Out", s.Out), ("X", s.X), ("Y", s.Y)))
        )
