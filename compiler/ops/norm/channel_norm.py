"""Per-channel ops: `lrn` (local response normalisation) and `affine_channel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Types, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import FINITE
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image.windows import (
    channels_first,
    in_layout,
    is_channels_last,
    permuted_layout,
    require_images,
    to_layout,
    view_channels_first,
)
from compiler.ops.norm.group_norm import require_channels
from compiler.ops.norm.norm_kernels import Channels, sums


def neighbour_sum(values: Array, before: int, after: int) -> Array:
    """Sum values [N, C, …] over channels c - `before` to c + `after` for each channel c."""
    channels = values.shape[1]
    total = np.zeros_like(values)
    for shift in range(-min(before, channels - 1), min(after, channels - 1) + 1):
        first, last = max(0, -shift), min(channels, channels - shift)
        total[:, first:last] += values[:, first + shift : last + shift]
    return total


class Lrn(OpDef, op="lrn"):
    """Out = X * MidOut^-beta, where MidOut = k + alpha * Σ X² over `n` channels around each.

    X is [N, C, H, W], or [N, H, W, C] with data_format NHWC. Reference: lrn_op.cc.
    """

    X = reads()
    Out = writes()
    MidOut = writes(shares_lod=False)
    n = attr(5)
    k = attr(2.0, FINITE)
    alpha = attr(0.0001, FINITE)
    beta = attr(0.75, FINITE)
    data_format = attr("AnyLayout")
    is_test = attr(False)

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        return permuted_layout("data_format", self.data_format, order, "X", "Out", "MidOut")

    def infer(self, X: TensorType) -> dict[str, TensorType]:
        require_images(self.kind, "X", X)
        if self.n < 1 or self.n % 2 == 0:
            raise BadAttribute(f"lrn: n is {self.n}, expected an odd number of channels")
        return {"Out": X, "MidOut": X}

    def numpy(self, X: Array) -> dict[str, Array]:
        images, reach = view_channels_first(self.data_format, X), (self.n - 1) // 2
        middle = self.k + self.alpha * neighbour_sum(images * images, reach, reach)
        middle = to_layout(self.data_format, middle)
        return {"Out": X * middle**-self.beta, "MidOut": middle}

    def grad(self, X: Array, Out: Array, MidOut: Array, d_Out: Array) -> dict[str, Array]:
        reach = (self.n - 1) // 2
        share = view_channels_first(self.data_format, d_Out * Out / MidOut)
        around = to_layout(self.data_format, neighbour_sum(share, reach, reach))
        return {"X": d_Out * MidOut**-self.beta - 2 * self.alpha * self.beta * X * around}

    def kernel(
        self, k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand, MidOut: DeviceOperand
    ) -> None:
        position = k.grid(*X.shape)
        t = k.loop(2 * self.reach(X.shape) + 1)
        near, inside = self.neighbour(k, X.shape, position, t)
        around = k.sum(k.square(X.at(*near, where=inside, other=0)), t)
        middle = around * self.alpha + self.k
        k.store(MidOut, position, middle)
        k.store(Out, position, X[position] * k.power(middle, -self.beta))

    def kernel_grad(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        Out: DeviceOperand,
        MidOut: DeviceOperand,
        d_Out: DeviceOperand,
        d_X: DeviceOperand,
    ) -> None:
        position = k.grid(*X.shape)
        t = k.loop(2 * self.reach(X.shape) + 1)
        near, inside = self.neighbour(k, X.shape, position, t)
        upstream, out = (operand.at(*near, where=inside, other=0) for operand in (d_Out, Out))
        around = k.sum(upstream * out / MidOut.at(*near, where=inside, other=1), t)
        own = d_Out[position] * k.power(MidOut[position], -self.beta)
        k.store(d_X, position, own - X[position] * around * (2 * self.alpha * self.beta))

    def reach(self, shape: Shape) -> int:
        """Number of channels summed on each side, limited to the number of channels if known."""
        channels = channels_first(self.data_format, shape)[1]
        reach = (self.n - 1) // 2
        return min(reach, channels) if isinstance(channels, int) else reach

    def neighbour(
        self, k: KernelBuilder, shape: Shape, position: tuple[Number, ...], iteration: Number
    ) -> tuple[tuple[Number, ...], Number]:
        """Return the same position in a neighbouring channel, and whether that channel exists."""
        channels: Size = channels_first(self.data_format, shape)[1]
        n, c, *rest = channels_first(self.data_format, position)
        near = c + iteration - self.reach(shape)
        inside = (near >= 0) & (near < k.size(channels))
        return in_layout(self.data_format, (n, near, *rest)), inside


class AffineChannel(OpDef, op="affine_channel"):
    """Out = X * Scale + Bias per channel: a batch_norm folded into scale and bias.

    X is [N, C, …], or […, C] with data_layout NHWC; Scale and Bias are [C].
    Reference: affine_channel_op.cc.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"Bias": "Scale"}

    X = reads()
    Scale = reads()
    Bias = reads()
    Out = writes()
    data_layout = attr("AnyLayout")

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        return permuted_layout("data_layout", self.data_layout, order, "X", "Out")

    def infer(self, X: TensorType, Scale: TensorType, Bias: TensorType) -> TensorType:
        require_channels(self.kind, X, self.data_layout, Scale=Scale, Bias=Bias)
        return X

    def infer_grad(self, Scale: TensorType, d_Out: TensorType) -> dict[str, TensorType]:
        return {"X": d_Out, "Scale": Scale, "Bias": Scale}

    def numpy(self, X: Array, Scale: Array, Bias: Array) -> Array:
        shape = channel_shape(X, self.data_layout)
        return X * Scale.reshape(shape) + Bias.reshape(shape)

    def grad(self, X: Array, Scale: Array, d_Out: Array) -> dict[str, Array]:
        shape = channel_shape(X, self.data_layout)
        axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
        d_scale, d_bias = (d_Out * X).sum(axis=axes), d_Out.sum(axis=axes)
        return {"X": d_Out * Scale.reshape(shape), "Scale": d_scale, "Bias": d_bias}

    def lower(
        self, k: SourceBuilder, X: Operand, Scale: Operand, Bias: Operand, Out: Operand
    ) -> None:
        channels = channels_first(self.data_layout, X.shape)[1]
        shape = in_layout(self.data_layout, (1, channels, *[1] * (X.type.rank - 2)))
        k.line(f"np.multiply({X}, {Scale.view(shape)}, out={Out})")
        k.line(f"np.add({Out}, {Bias.view(shape)}, out={Out})")

    def kernel(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        Scale: DeviceOperand,
        Bias: DeviceOperand,
        Out: DeviceOperand,
    ) -> None:
        s = Channels.of(self.data_layout, X.shape)
        s.expect(k, Scale, Bias)
        position = k.grid(*s.view)
        result = X.reshaped(s.view)[position] * Scale[position[1]] + Bias[position[1]]
        k.store(Out.reshaped(s.view), position, result)

    def kernel_grad(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        Scale: DeviceOperand,
        d_Out: DeviceOperand,
        d_X: DeviceOperand | None,
        d_Scale: DeviceOperand | None,
        d_Bias: DeviceOperand | None,
    ) -> None:
        s = Channels.of(self.data_layout, X.shape)

        def values(c: Number, position: Number) -> list[Number]:
            upstream = s.read(k, d_Out, c, position)
            pairs = ((d_Scale, upstream * s.read(k, X, c, position)), (d_Bias, upstream))
            return [value for out, value in pairs if out is not None]

        requested = [out for out in (d_Scale, d_Bias) if out is not None]
        if requested:
            sums(k, s, values, requested)
        if d_X is not None:
            position = k.grid(*s.view)
            k.store(
                d_X.reshaped(s.view),
                position,
                d_Out.reshaped(s.view)[position] * Scale[position[1]],
            )


def channel_shape(X: Array, layout: str) -> tuple[int, ...]:
    """Return the shape that broadcasts a vector of channels to X: -1 at the channels, else 1."""
    first = (1, -1, *[1] * (X.ndim - 2))
    return (*first[:1], *first[2:], -1) if is_channels_last(layout) else first
