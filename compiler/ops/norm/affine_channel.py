"""A scale and a bias for each channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compiler.ir.opdef import OpDef, Types, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.types import Array, TensorType
from compiler.ir.windows import is_channels_last
from compiler.ops.image.layouts import (
    channels_first,
    in_layout,
    permuted_layout,
)
from compiler.ops.norm.channel_kernels import Channels, sums
from compiler.ops.norm.group_norm import require_channels


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
