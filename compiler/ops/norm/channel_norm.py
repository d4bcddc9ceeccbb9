"""What works across or along channels: `lrn`, which damps by neighbours, and `affine_channel`."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.image.windows import (
    channels_first,
    in_layout,
    is_channels_last,
    laid_out,
    require_images,
    seen_channels_first,
)
from compiler.ops.norm.group_norm import require_channels


def neighbour_sum(values: Array, before: int, after: int) -> Array:
    """For each channel of [N, C, …], the sum over those from `before` below to `after` above it."""
    channels = values.shape[1]
    total = np.zeros_like(values)
    for shift in range(-before, after + 1):
        first, last = max(0, -shift), min(channels, channels - shift)
        if first < last:
            total[:, first:last] += values[:, first + shift : last + shift]
    return total


class Lrn(OpDef, op="lrn"):
    """Out = X * MidOut^-beta, where MidOut = k + alpha * Σ X² over `n` channels around each.

    X is [N, C, H, W], or [N, H, W, C] with data_format NHWC. Reference: lrn_op.cc.
    """

    X = reads()
    Out = writes()
    MidOut = writes()
    n = attr(5)
    k = attr(2.0)
    alpha = attr(0.0001)
    beta = attr(0.75)
    data_format = attr("AnyLayout")
    is_test = attr(False)

    def infer(self, X: TensorType) -> dict[str, TensorType]:
        require_images(self.kind, "X", X)
        if self.n < 1 or self.n % 2 == 0:
            raise BadAttribute(f"lrn: n is {self.n}, expected an odd number of channels")
        return {"Out": X, "MidOut": X}

    def numpy(self, X: Array) -> dict[str, Array]:
        images, reach = seen_channels_first(self.data_format, X), (self.n - 1) // 2
        middle = self.k + self.alpha * neighbour_sum(images * images, reach, reach)
        middle = laid_out(self.data_format, middle)
        return {"Out": X * middle**-self.beta, "MidOut": middle}

    def grad(self, X: Array, Out: Array, MidOut: Array, d_Out: Array) -> dict[str, Array]:
        reach = (self.n - 1) // 2
        share = seen_channels_first(self.data_format, d_Out * Out / MidOut)
        around = laid_out(self.data_format, neighbour_sum(share, reach, reach))
        return {"X": d_Out * MidOut**-self.beta - 2 * self.alpha * self.beta * X * around}


class AffineChannel(OpDef, op="affine_channel"):
    """Out = X * Scale + Bias, a channel at a time: batch_norm with what it has learnt put together.

    X is [N, C, …], or […, C] with data_layout NHWC; Scale and Bias are [C].
    Reference: affine_channel_op.cc.
    """

    X = reads()
    Scale = reads()
    Bias = reads()
    Out = writes()
    data_layout = attr("AnyLayout")

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

    def lower(self, k: Kernel, X: Operand, Scale: Operand, Bias: Operand, Out: Operand) -> None:
        channels = channels_first(self.data_layout, X.shape)[1]
        shape = in_layout(self.data_layout, (1, channels, *[1] * (X.type.rank - 2)))
        k.line(f"np.multiply({X}, {Scale.view(shape)}, out={Out})")
        k.line(f"np.add({Out}, {Bias.view(shape)}, out={Out})")


def channel_shape(X: Array, layout: str) -> tuple[int, ...]:
    """The shape in which a vector of channels broadcasts along X: -1 at the channels, else 1."""
    first = (1, -1, *[1] * (X.ndim - 2))
    return (*first[:1], *first[2:], -1) if is_channels_last(layout) else first
