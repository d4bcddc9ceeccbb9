"""Rearrangement of image elements between channels and positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size
from compiler.ir.opdef import Attr, OpDef, Slots, attr, reads, required, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.opdef.size_comparison import is_no_multiple
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image.layouts import (
    channels_first,
    in_layout,
    require_images,
    to_layout,
    view_channels_first,
)


def require_divisible(op: str, X: TensorType, what: str, size: Size, by: int) -> None:
    """Raise ShapeError if `size` of X is not divisible by `by`, BadAttribute if `by` is below 1."""
    if by < 1:
        raise BadAttribute(f"{op}: the divisor of {what} is {by}, expected at least 1")
    if is_no_multiple(size, by):
        raise ShapeError(f"{op}: X is {X}, whose {size} {what} cannot be divided by {by}")


class PixelShuffle(OpDef, op="pixel_shuffle"):
    """Out[n, c, h·r + i, w·r + j] = X[n, (c·r + i)·r + j, h, w], r the `upscale_factor`.

    X is [N, C·r², H, W] and Out [N, C, H·r, W·r]. Reference: pixel_shuffle_op.cc.
    """

    X = reads()
    Out = writes(shares_lod=False)
    upscale_factor = attr(1)
    data_format = attr("NCHW")

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_images(self.kind, "X", X)
        times = self.upscale_factor
        batch, channels, height, width = channels_first(self.data_format, X.shape)
        require_divisible(self.kind, X, "channels", channels, times * times if times > 0 else times)
        shape = (batch, channels // (times * times), height * times, width * times)
        return X.with_shape(in_layout(self.data_format, shape))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        d_Out = s.d_Out
        require_images(f"{self.kind}_grad", "Out@GRAD", d_Out)
        times = self.upscale_factor
        batch, channels, height, width = channels_first(self.data_format, d_Out.shape)
        for what, size in (("rows", height), ("columns", width)):
            require_divisible(f"{self.kind}_grad", d_Out, what, size, times)
        shape = (batch, channels * times * times, height // times, width // times)
        return {"X": d_Out.with_shape(in_layout(self.data_format, shape))}

    def numpy(self, X: Array) -> Array:
        images, times = view_channels_first(self.data_format, X), self.upscale_factor
        batch, channels, height, width = images.shape
        depth = channels // (times * times)
        parts = images.reshape(batch, depth, times, times, height, width)
        result = parts.transpose(0, 1, 4, 2, 5, 3).reshape(
            batch, depth, height * times, width * times
        )
        return to_layout(self.data_format, result)

    def grad(self, d_Out: Array) -> dict[str, Array]:
        upstream, times = view_channels_first(self.data_format, d_Out), self.upscale_factor
        batch, channels, height, width = upstream.shape
        rows, columns = height // times, width // times
        parts = upstream.reshape(batch, channels, rows, times, columns, times)
        result = parts.transpose(0, 1, 3, 5, 2, 4).reshape(
            batch, channels * times * times, rows, columns
        )
        return {"X": to_layout(self.data_format, result)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.copy_elements(k, s.X, s.Out, True)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.copy_elements(k, s.d_X, s.d_Out, False)

    def copy_elements(
        self, k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand, forth: bool
    ) -> None:
        """Emit a copy between X and Out over the elements of Out; `forth` copies X to Out."""
        times, indices = self.upscale_factor, k.grid(*Out.shape)
        n, c, y, x = channels_first(self.data_format, indices)
        channel = (c * times + k.mod(y, times)) * times + k.mod(x, times)
        position = (n, channel, k.div(y, times), k.div(x, times))
        there = in_layout(self.data_format, position)
        if forth:
            k.store(Out, indices, X[there])
        else:
            k.store(X, there, Out[indices])


class ShuffleChannel(OpDef, op="shuffle_channel"):
    """Out = X with its channels shuffled: [group, C/group] transposed to [C/group, group].

    X is [N, C, H, W]. As in the reference, the gradient applies the same shuffle instead of the
    inverse one, which agrees only for C = group². Reference: shuffle_channel_op.cc.
    """

    lod_source = ""

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    Out = writes()
    group = attr(1)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_images(self.kind, "X", X)
        require_divisible(self.kind, X, "channels", X.shape[1], self.group)
        return X

    def numpy(self, X: Array) -> Array:
        return shuffled_channels(X, self.group)

    def grad(self, d_Out: Array) -> dict[str, Array]:
        return {"X": shuffled_channels(d_Out, self.group)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        n, c, y, x = indices = k.grid(*X.shape)
        rows = k.size(X.shape[1] // self.group)
        source = k.mod(c, self.group) * rows + k.div(c, self.group)
        k.store(s.Out, indices, X[n, source, y, x])

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.kernel(k, KernelSlots.of(self.kind, X=s.d_Out, Out=s.d_X))


def shuffled_channels(X: Array, group: int) -> Array:
    """Return X with channels [group, C/group] transposed to [C/group, group]."""
    batch, channels, *image = X.shape
    rows = X.reshape(batch, group, channels // group, *image)
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(X.shape)


class SpaceToDepth(OpDef, op="space_to_depth"):
    """Out has the positions of X in blocks of `blocksize`², as channels: [N, C·b², H/b, W/b].

    The order is that of darknet's "reorg", as in the reference: the elements of X are rearranged to
    an image [N, C/b², H·b, W·b], which is then reshaped to Out. So b² has to divide C too.
    Reference: space_to_depth_op.cc.
    """

    X = reads()
    Out = writes()
    blocksize: Attr[int] = required(int, WIDE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_images(self.kind, "X", X)
        times, (batch, channels, height, width) = self.blocksize, X.shape
        require_divisible(self.kind, X, "rows", height, times)
        require_divisible(self.kind, X, "columns", width, times)
        require_divisible(self.kind, X, "channels", channels, times * times)
        result = (batch, channels * times * times, height // times, width // times)
        return X.with_shape(result)

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.X}

    def numpy(self, X: Array) -> Array:
        times, (batch, channels, height, width) = self.blocksize, X.shape
        parts = X.reshape(batch, times, times, channels // (times * times), height, width)
        result = (batch, channels * times * times, height // times, width // times)
        return np.ascontiguousarray(parts.transpose(0, 3, 4, 1, 5, 2)).reshape(result)

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        times, (batch, channels, rows, columns) = self.blocksize, d_Out.shape
        height, width = rows * times, columns * times
        parts = d_Out.reshape(batch, channels // times**4, height, times, width, times)
        result = np.ascontiguousarray(parts.transpose(0, 3, 5, 1, 2, 4))
        return {"X": result.reshape(batch, channels // (times * times), height, width)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        parts, indices = self.parts(X.shape), k.grid(*X.shape)
        k.store(s.Out.reshaped(parts), self.target_index(k, X.shape, indices), X[indices])

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        parts, indices = self.parts(d_X.shape), k.grid(*d_X.shape)
        k.store(d_X, indices, s.d_Out.reshaped(parts)[self.target_index(k, d_X.shape, indices)])

    def parts(self, X: Shape) -> Shape:
        """Return the shape of the rearranged X: [N, C/b², H, b, W, b]."""
        times, (batch, channels, height, width) = self.blocksize, X
        return (batch, channels // (times * times), height, times, width, times)

    def target_index(
        self, k: KernelBuilder, X: Shape, indices: tuple[Number, ...]
    ) -> tuple[Number, ...]:
        """Return the index that an element of X is written to."""
        n, c, y, x = indices
        across, down, depth = k.unravel(c, (self.blocksize, self.blocksize, self.parts(X)[1]))
        return n, depth, y, across, x, down
