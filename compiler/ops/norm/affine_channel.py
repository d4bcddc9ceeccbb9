"""A scale and a bias for each channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compiler.ir.opdef import OpDef, Slots, Types, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
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

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_channels(self.kind, s.X, self.data_layout, Scale=s.Scale, Bias=s.Bias)
        return s.X

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.d_Out, "Scale": s.Scale, "Bias": s.Scale}

    def numpy(self, X: Array, Scale: Array, Bias: Array) -> Array:
        shape = channel_shape(X, self.data_layout)
        return X * Scale.reshape(shape) + Bias.reshape(shape)

    def grad(self, X: Array, Scale: Array, d_Out: Array) -> dict[str, Array]:
        shape = channel_shape(X, self.data_layout)
        axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
        d_scale, d_bias = (d_Out * X).sum(axis=axes), d_Out.sum(axis=axes)
        return {"X": d_Out * Scale.reshape(shape), "Scale": d_scale, "Bias": d_bias}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Scale, Bias, Out = s.X, s.Scale, s.Bias, s.Out
        channels = channels_first(self.data_layout, X.shape)[1]
        shape = in_layout(self.data_layout, (1, channels, *[1] * (X.type.rank - 2)))
        k.line(f"np.multiply({X}, {Scale.view(shape)}, out={Out})")
        k.line(f"np.add({Out}, {Bias.view(shape)}, out={Out})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        channels = Channels.of(self.data_layout, s.X.shape)
        channels.expect(k, s.Scale, s.Bias)
        position = k.grid(*channels.view)
        result = s.X.reshaped(channels.view)[position] * s.Scale[position[1]] + s.Bias[position[1]]
        k.store(s.Out.reshaped(channels.view), position, result)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Scale, d_Bias = s.get("d_Scale"), s.get("d_Bias")
        channels = Channels.of(self.data_layout, s.X.shape)

        def values(c: Number, position: Number) -> list[Number]:
            upstream = channels.read(k, s.d_Out, c, position)
            pairs = ((d_Scale, upstream * channels.read(k, s.X, c, position)), (d_Bias, upstream))
            return [value for out, value in pairs if out is not None]

        requested = [out for out in (d_Scale, d_Bias) if out is not None]
        if requested:
            sums(k, channels, values, requested)
        if (d_X := s.get("d_X")) is not None:
            position = k.grid(*channels.view)
            k.store(
                d_X.reshaped(channels.view),
                position,
                s.d_Out.reshaped(channels.view)[position] * s.Scale[position[1]],
            )


def channel_shape(X: Array, layout: str) -> tuple[int, ...]:
    """Return the shape that broadcasts a vector of channels to X: -1 at the channels, else 1."""
    first = (1, -1, *[1] * (X.ndim - 2))
    return (*first[:1], *first[2:], -1) if is_channels_last(layout) else first
