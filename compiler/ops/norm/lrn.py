"""Local response normalisation across channels."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Slots, Types, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import FINITE
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Number,
)
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image.layouts import (
    channels_first,
    in_layout,
    permuted_layout,
    require_images,
    to_layout,
    view_channels_first,
)


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

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
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

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        position = k.grid(*X.shape)
        t = k.loop(2 * self.reach(X.shape) + 1)
        near, inside = self.neighbour(k, X.shape, position, t)
        around = k.sum(k.square(X.at(*near, where=inside, other=0)), t)
        middle = around * self.alpha + self.k
        k.store(s.MidOut, position, middle)
        k.store(s.Out, position, X[position] * k.power(middle, -self.beta))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        position = k.grid(*X.shape)
        t = k.loop(2 * self.reach(X.shape) + 1)
        near, inside = self.neighbour(k, X.shape, position, t)
        upstream, out = (operand.at(*near, where=inside, other=0) for operand in (s.d_Out, s.Out))
        around = k.sum(upstream * out / s.MidOut.at(*near, where=inside, other=1), t)
        own = s.d_Out[position] * k.power(s.MidOut[position], -self.beta)
        k.store(s.d_X, position, own - X[position] * around * (2 * self.alpha * self.beta))

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
