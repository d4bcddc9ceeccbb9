"""Windows of an image as columns (`unfold`) or as sequences (`im2sequence`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import UNKNOWN, product
from compiler.ir.opdef import Attr, OpDef, Slots, attr, reads, required_list, writes, writes_lod
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ir.windows import Window
from compiler.ops.image.conv_geometry import input_positions, output_positions
from compiler.ops.image.conv_numpy import (
    Windows,
    gather_columns,
    pad_image,
    padded_sizes,
    scatter_columns,
    without_padding,
)
from compiler.ops.image.layouts import concrete_shape, require_images
from compiler.ops.image.window_attributes import WindowAttributes, image_windows
from compiler.ops.sequence.offsets import even_offsets
from compiler.ops.type_checks import require_same_shape


def paddings_by_axis(paddings: Sequence[int]) -> list[int]:
    """Return [top, left, bottom, right] as [top, bottom, left, right]; two sizes unchanged."""
    return (
        [paddings[position] for position in (0, 2, 1, 3)] if len(paddings) == 4 else list(paddings)
    )


def scatter_images(columns: Array, windows: Windows) -> Array:
    """Return images [N, C, …] from columns [N, C, taps, …positions] (col2im)."""
    sizes = [window.size for window in windows]
    images = np.empty((*columns.shape[:2], *sizes), columns.dtype)
    for image, part in zip(images, columns, strict=True):
        frame = np.zeros((len(image), *padded_sizes(windows)), images.dtype)
        scatter_columns(part, frame, windows)
        image[...] = without_padding(frame, windows)
    return images


class Unfold(OpDef, op="unfold"):
    """Y[n, (c·kh + i)·kw + j, l] = X[n, c] under tap (i, j) of window l.

    X is [N, C, H, W], Y [N, C·kh·kw, positions]. Paddings are [height, width] or [top, left,
    bottom, right]. Reference: unfold_op.cc.
    """

    X = reads()
    Y = writes(shares_lod=False)
    kernel_sizes: Attr[list[int]] = required_list(int)
    strides: Attr[list[int]] = required_list(int)
    paddings: Attr[list[int]] = required_list(int)
    dilations: Attr[list[int]] = required_list(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_images(self.kind, "X", X)
        require_pair(self.kind, "kernel_sizes", self.kernel_sizes)
        paddings = paddings_by_axis(self.paddings)
        sliding = WindowAttributes(self.kind, self.strides, paddings, self.dilations)
        rows, columns = sliding.over(X.shape[2:], self.kernel_sizes)
        depth = X.shape[1] * self.kernel_sizes[0] * self.kernel_sizes[1]
        return X.with_shape((X.shape[0], depth, rows.count * columns.count))

    def numpy(self, X: Array) -> Array:
        sliding = (self.strides, paddings_by_axis(self.paddings), self.dilations, "EXPLICIT")
        windows = image_windows(X.shape[2:], self.kernel_sizes, *sliding)
        rows, columns = windows
        depth, positions = X.shape[1] * rows.kernel * columns.kernel, rows.count * columns.count
        result = np.empty((len(X), depth, positions), X.dtype)
        for image, out in zip(X, result, strict=True):
            gathered = gather_columns(pad_image(image, windows), windows)
            out[...] = gathered.reshape(depth, positions)
        return result

    def grad(self, X: Shape, d_Y: Array) -> dict[str, Array]:
        batch, channels, *sizes = concrete_shape(X)
        sliding = (self.strides, paddings_by_axis(self.paddings), self.dilations, "EXPLICIT")
        windows = image_windows(sizes, self.kernel_sizes, *sliding)
        rows, columns = windows
        shape = (batch, channels, rows.kernel * columns.kernel, rows.count, columns.count)
        return {"X": scatter_images(d_Y.reshape(shape), windows)}

    def windows(self, X: Shape) -> tuple[Window, ...]:
        """Return the windows of rows and columns."""
        paddings = paddings_by_axis(self.paddings)
        sliding = WindowAttributes(self.kind, self.strides, paddings, self.dilations)
        return sliding.over(X[2:], self.kernel_sizes)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        n, depth, position = k.grid(*s.Y.shape)
        windows = self.windows(X.shape)
        c, *taps = k.unravel(depth, (X.shape[1], *self.kernel_sizes))
        at, inside = input_positions(
            k, windows, k.unravel(position, [window.count for window in windows]), taps
        )
        k.store(s.Y, (n, depth, position), X.at(n, c, *at, where=inside, other=0))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        n, c, *position = k.grid(*d_X.shape)
        windows, taps = self.windows(d_X.shape), product(self.kernel_sizes)
        iteration = k.loop(taps)
        at, inside = output_positions(k, windows, position, k.unravel(iteration, self.kernel_sizes))
        columns = s.d_Y.reshaped((*d_X.shape[:2], taps, *(window.count for window in windows)))
        upstream = columns.at(n, c, iteration, *at, where=inside, other=0)
        k.store(d_X, (n, c, *position), k.sum(upstream, iteration))


def require_pair(op: str, name: str, sizes: Sequence[int]) -> None:
    """Raise BadAttribute unless an attribute has a size for rows and one for columns."""
    if len(sizes) != 2 or min(sizes) < 1:
        raise BadAttribute(f"{op}: {name} is {list(sizes)}, expected 2 sizes of at least 1")


class Im2Sequence(OpDef, op="im2sequence"):
    """Each image becomes a sequence of its windows in row-major order: Out [positions, C·kh·kw].

    X is [N, C, H, W]; Out has one sequence per image. Paddings are [top, left, bottom, right]. If Y
    [N, 2] holds the real sizes of the images, each has only the windows that fit on its size
    divided by `out_stride`, rounded up. Reference: im2sequence_op.cc.
    """

    X = reads()
    Y = reads(optional=True, no_grad=True)
    Out = writes()
    Out_lod = writes_lod("Out")
    kernels: Attr[list[int]] = required_list(int)
    strides = attr([1, 1])
    paddings = attr([0, 0, 0, 0])
    out_stride = attr([1, 1])

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X = s.X
        require_images(self.kind, "X", X)
        require_pair(self.kind, "kernels", self.kernels)
        require_pair(self.kind, "out_stride", self.out_stride)
        rows, columns = self.windows(X.shape)
        positions = UNKNOWN if s.get("Y") is not None else X.shape[0] * rows.count * columns.count
        depth = X.shape[1] * self.kernels[0] * self.kernels[1]
        offsets = TensorType(DType.INT64, (X.shape[0] + 1,))
        return {"Out": X.with_shape((positions, depth)), "Out_lod": [offsets]}

    def windows(self, X: Shape) -> tuple[Window, ...]:
        """Return the windows of rows and columns."""
        paddings = paddings_by_axis(self.paddings)
        return WindowAttributes(self.kind, self.strides, paddings, [1, 1]).over(X[2:], self.kernels)

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        """Infer the gradient's type; d_Out covers all windows, as without Y."""
        X = s.X
        require_images(self.kind, "X", X)
        require_pair(self.kind, "kernels", self.kernels)
        rows, columns = self.windows(X.shape)
        positions = X.shape[0] * rows.count * columns.count
        expected = X.with_shape((positions, X.shape[1] * self.kernels[0] * self.kernels[1]))
        require_same_shape(self.kind + "_grad", d_Out=s.d_Out, windows=expected)
        return {"X": X}

    def numpy(self, X: Array, Y: Array | None) -> dict[str, object]:
        sliding = (self.strides, paddings_by_axis(self.paddings), [1, 1], "EXPLICIT")
        windows = image_windows(X.shape[2:], self.kernels, *sliding)
        result: list[Array] = []
        for number, image in enumerate(X):
            rows, columns = windows
            if Y is not None:
                real = [-(-int(n) // by) for n, by in zip(Y[number], self.out_stride, strict=True)]
                rows, columns = image_windows(real, self.kernels, *sliding)
            gathered = gather_columns(pad_image(image, windows), [rows, columns])
            result.append(gathered.transpose(2, 3, 0, 1).reshape(rows.count * columns.count, -1))
        offsets = np.cumsum([0, *[len(rows) for rows in result]], dtype=np.int64)
        none = np.empty((0, X.shape[1] * self.kernels[0] * self.kernels[1]), X.dtype)
        return {"Out": np.concatenate([none, *result]), "Out_lod": [offsets]}

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        batch, channels, *sizes = concrete_shape(X)
        sliding = (self.strides, paddings_by_axis(self.paddings), [1, 1], "EXPLICIT")
        windows = image_windows(sizes, self.kernels, *sliding)
        rows, columns = windows
        parts = d_Out.reshape(
            batch, rows.count, columns.count, channels, rows.kernel * columns.kernel
        )
        return {"X": scatter_images(parts.transpose(0, 3, 4, 1, 2), windows)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        Out = s.get("Out")
        windows = self.windows(X.shape)
        counts = [window.count for window in windows]
        for offsets in s.host.all("Out_lod"):
            k.write_host(offsets, k.on_host(even_offsets, X.shape[0], product(counts)))
        if Out is None:
            return
        position, depth = k.grid(*Out.shape)
        n, *y = k.unravel(position, (X.shape[0], *counts))
        c, *taps = k.unravel(depth, (X.shape[1], *self.kernels))
        at, inside = input_positions(k, windows, y, taps)
        k.store(Out, (position, depth), X.at(n, c, *at, where=inside, other=0))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        n, c, *position = k.grid(*d_X.shape)
        windows, taps = self.windows(d_X.shape), product(self.kernels)
        iteration = k.loop(taps)
        at, inside = output_positions(k, windows, position, k.unravel(iteration, self.kernels))
        counts = [window.count for window in windows]
        rows = s.d_Out.reshaped((d_X.shape[0], *counts, d_X.shape[1], taps))
        upstream = rows.at(n, *at, c, iteration, where=inside, other=0)
        k.store(d_X, (n, c, *position), k.sum(upstream, iteration))
