"""Pooling of images: the maximum or the mean of the elements under each window.

`pool2d` and `pool3d` share one class; generated code iterates over the taps of the window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import (
    Attr,
    OpDef,
    Slots,
    Types,
    attr,
    reads,
    required,
    required_list,
    writes,
)
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, DType, Shape, TensorType, lowest
from compiler.ir.windows import PoolGeometry, Window, is_channels_last
from compiler.ops.image import pool_kernels
from compiler.ops.image.layouts import (
    channels_first,
    channels_first_expression,
    in_layout,
    permuted_layout,
    require_images,
    to_layout,
    view_channels_first,
)
from compiler.ops.image.pool_numpy import (
    one_over_covered,
    pool_cells,
    pool_cells_gradient,
    pool_largest,
    pool_largest_gradient,
    pool_sum,
    pool_sum_gradient,
    pool_taps,
    pool_whole_gradient,
    window_cells,
)
from compiler.ops.image.window_attributes import WindowAttributes, check_windows_at_bind

Windows: TypeAlias = tuple[Window, ...]


class Pooling(OpDef):
    """Out[n, c, y] = the maximum (`max`) or the mean (`avg`) of X[n, c] under window y.

    X and Out are [N, C, …], or [N, …, C], see data_format. Padding is never the maximum and adds
    nothing to a mean, which divides by the number of covered image elements (`exclusive`) or by the
    window size. `ceil_mode` keeps a last window that crosses the edge. `global_pooling` takes the
    whole image as the window. `adaptive` computes `ksize` outputs: means split the image into that
    many cells, but maxima, as in the reference, have windows of size `ksize` that move by
    `strides`. The gradient of a maximum is added to the first element, in row-major order, that
    equals Out.
    Reference: pool_op.cc, math/pooling.cc.
    """

    image_axes: ClassVar[int] = 2
    X = reads()
    Out = writes()
    pooling_type = required(str)
    ksize: Attr[list[int]] = required_list(int)
    strides = attr([1, 1])
    paddings = attr([0, 0])
    global_pooling = attr(False)
    exclusive = attr(True)
    ceil_mode = attr(False)
    adaptive = attr(False)
    padding_algorithm = attr("EXPLICIT")
    data_format = attr("NCHW")

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_images(self.kind, "X", X, self.image_axes + 2)
        if self.pooling_type not in ("max", "avg"):
            actual = f"{self.kind}: pooling_type is {self.pooling_type!r}"
            raise BadAttribute(actual, hint="expected 'max' or 'avg'")
        if not self.global_pooling and (len(self.ksize) != self.image_axes or min(self.ksize) < 1):
            expected = f"expected {self.image_axes} sizes of at least 1"
            raise BadAttribute(f"{self.kind}: ksize is {self.ksize}, {expected}")
        batch, channels, *sizes = channels_first(self.data_format, X.shape)
        splits = self.global_pooling or self.adaptive
        if splits and any(is_less(size, 1) for size in sizes):
            raise ShapeError(f"{self.kind}: X is {X}, expected images of one element or more")
        shape = (batch, channels, *(window.count for window in self.windows(X.shape)))
        return X.with_shape(in_layout(self.data_format, shape))

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        return permuted_layout("data_format", self.data_format, order, "X", "Out")

    def windows(self, X: Shape) -> tuple[Window, ...]:
        """Return the windows of images of this shape."""
        sizes = channels_first(self.data_format, X)[2:]
        if self.global_pooling:
            return tuple(_split(size, 1) for size in sizes)
        if self.adaptive and self.largest:
            specs = zip(sizes, self.ksize, self.strides, strict=True)
            return tuple(Window(size, k, stride, 1, 0, 0, k) for size, k, stride in specs)
        if self.adaptive:
            specs = zip(sizes, self.ksize, strict=True)
            return tuple(_split(size, count) for size, count in specs)
        sliding = WindowAttributes(
            self.kind,
            self.strides,
            self.paddings,
            [1] * self.image_axes,
            self.padding_algorithm,
            self.ceil_mode,
            self.image_axes,
        )
        return tuple(window.clipped for window in sliding.over(sizes, self.ksize))

    def numpy(self, X: Array) -> Array:
        images = view_channels_first(self.data_format, X)
        sliding = (self.ksize, self.strides, self.paddings, self.padding_algorithm, self.ceil_mode)
        adaptive = self.pooling_type if self.adaptive else ""
        cells = window_cells(images.shape[2:], *sliding, self.global_pooling, adaptive)
        fixed = not (self.exclusive or self.adaptive or self.global_pooling)
        divisor = int(np.prod(self.ksize)) if fixed else 0
        result = pool_cells(images, cells, self.pooling_type == "max", divisor)
        return to_layout(self.data_format, result)

    def grad(self, X: Array, Out: Array, d_Out: Array) -> dict[str, Array]:
        images = view_channels_first(self.data_format, X)
        outputs = view_channels_first(self.data_format, Out)
        upstream = view_channels_first(self.data_format, d_Out)
        sliding = (self.ksize, self.strides, self.paddings, self.padding_algorithm, self.ceil_mode)
        adaptive = self.pooling_type if self.adaptive else ""
        cells = window_cells(images.shape[2:], *sliding, self.global_pooling, adaptive)
        fixed = not (self.exclusive or self.adaptive or self.global_pooling)
        divisor = int(np.prod(self.ksize)) if fixed else 0
        maxima = outputs if self.pooling_type == "max" else None
        result = pool_cells_gradient(images, maxima, upstream, cells, divisor)
        return {"X": to_layout(self.data_format, result)}

    @property
    def largest(self) -> bool:
        """True for the maximum, false for the mean."""
        return self.pooling_type == "max"

    @property
    def divisor(self) -> int:
        """Divisor of a mean; 0 for the number of elements that the window covers."""
        fixed = not (self.exclusive or self.adaptive or self.global_pooling)
        return math.prod(self.ksize) if fixed else 0

    def covers_all(self, windows: Windows) -> bool:
        """True if there is one position, whose result is the maximum or the mean of the image."""
        taps = product([window.kernel for window in windows])
        is_plain = self.largest or self.divisor in (0, taps)
        return is_plain and all(
            w.count == 1 and w.kernel == w.size and w.is_padless for w in windows
        )

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Out = s.X, s.Out
        windows = self.windows(X.shape)
        check_windows_at_bind(k, self.kind, windows)
        images, outputs = self.nchw(k, X), self.nchw(k, Out)
        if self.covers_all(windows):
            self.lower_whole(k, windows, X, Out)
        elif _is_uneven(windows):
            pooled = (
                f"{k.function(pool_cells)}({images}, {self.cells_text(windows)}, {self.largest}, 0)"
            )
            k.line(f"np.copyto({outputs}, {pooled})")
        elif self.largest:
            taps = self.taps(k, windows, [X], [Out])
            k.line(f"{k.function(pool_largest)}({taps}, {outputs})")
        else:
            taps, share = self.taps(k, windows, [X], [Out]), self.share(k, windows, X)
            k.line(f"{k.function(pool_sum)}({taps}, {outputs}, {share})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Out, d_Out = s.X, s.Out, s.d_Out
        d_X = s.get("d_X")
        if d_X is None:
            return
        windows = self.windows(X.shape)
        if self.covers_all(windows):
            self.lower_whole_grad(k, windows, X, Out, d_Out, d_X)
        elif _is_uneven(windows):
            maxima = self.nchw(k, Out) if self.largest else "None"
            images_text = f"{self.nchw(k, X)}, {maxima}, {self.nchw(k, d_Out)}"
            cells_text = f"{self.cells_text(windows)}, 0"
            pooled = f"{k.function(pool_cells_gradient)}({images_text}, {cells_text})"
            k.line(f"np.copyto({self.nchw(k, d_X)}, {pooled})")
        elif self.largest:
            self.lower_largest_grad(k, windows, [X, d_X], [Out, d_Out])
        else:
            part = k.scratch(Out.shape, Out.type.dtype)
            taps, share = self.taps(k, windows, [d_X], [part]), self.share(k, windows, X)
            upstream = f"{self.nchw(k, d_Out)}, {share}, {self.nchw(k, part)}"
            k.line(f"{k.function(pool_sum_gradient)}({taps}, {upstream}, {d_X})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Out = s.X, s.Out
        p = PoolGeometry(self.data_format, self.windows(X.shape), self.divisor)
        if self.largest:
            if not k.max_pooling(p, X, Out):
                pool_kernels.largest(k, p, X, Out, None)
        elif not k.mean_pooling(p, X, Out):
            pool_kernels.means(k, p, X, Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, d_Out, d_X = s.X, s.d_Out, s.d_X
        p = PoolGeometry(self.data_format, self.windows(X.shape), self.divisor)
        if self.largest:
            if not k.max_pooling_gradient(p, X, s.Out, d_Out, d_X):
                positions = k.scratch(d_Out.shape, DType.INT32)

                def value_at(n: Number, c: Number, y: Sequence[Number]) -> Number:
                    return s.Out[pool_kernels.element_index(p, n, c, y)]

                pool_kernels.positions_of(k, p, X, value_at, positions)
                pool_kernels.largest_gradient(k, p, positions, d_Out, d_X)
        elif not k.mean_pooling_gradient(p, d_Out, d_X):
            pool_kernels.means_gradient(k, p, d_Out, d_X)

    def lower_largest_grad(
        self, k: SourceBuilder, windows: Windows, images: list[Operand], outputs: list[Operand]
    ) -> None:
        """Emit the gradient of a maximum, with masks of unmatched and matched outputs."""
        shape, dtype = outputs[0].shape, outputs[0].type.dtype
        waiting, matched = (k.scratch(shape, DType.BOOL) for _ in range(2))
        overlap = any(window.overlaps for window in windows)
        part = [k.scratch(shape, dtype)] if overlap else []
        taps = self.taps(k, windows, images, [*outputs, waiting, matched, *part])
        k.line(f"{k.function(pool_largest_gradient)}({taps}, {waiting}, {images[1]})")

    def lower_whole(self, k: SourceBuilder, windows: Windows, X: Operand, Out: Operand) -> None:
        """Emit pooling with the whole image as window."""
        whole, one, letters = self.flat(windows, X.shape)
        images_text, result = X.view(whole), Out.view((*one[:1], *one[2:]))
        if self.largest:
            least = lowest(X.type.dtype)
            k.line(f"np.max({images_text}, axis=1, out={result}, initial={least!r})")
        else:
            k.line(f"np.einsum({letters!r}, {images_text}, out={result})")
            k.line(f"np.multiply({result}, 1 / ({whole[1]}), out={result})")

    def lower_whole_grad(
        self,
        k: SourceBuilder,
        windows: Windows,
        X: Operand,
        Out: Operand,
        d_Out: Operand,
        d_X: Operand,
    ) -> None:
        """Emit the gradient of pooling with the whole image as window."""
        whole, one, _ = self.flat(windows, X.shape)
        upstream, result = d_Out.view(one), d_X.view(whole)
        if self.largest:
            arrays = f"{X.view(whole)}, {Out.view(one)}, {upstream}, {result}"
            k.line(f"{k.function(pool_whole_gradient)}({arrays})")
        else:
            k.line(f"np.multiply({upstream}, 1 / ({whole[1]}), out={result})")

    def flat(self, windows: Windows, X: Shape) -> tuple[Shape, Shape, str]:
        """Return shapes of X with all positions on axis 1 and of Out, and the sum's subscripts."""
        batch, channels, *_ = channels_first(self.data_format, X)
        positions = product(window.size for window in windows)
        if is_channels_last(self.data_format):
            return (batch, positions, channels), (batch, 1, channels), "npc->nc"
        return (batch * channels, positions), (batch * channels, 1), "cp->c"

    def nchw(self, k: SourceBuilder, images: Operand) -> str:
        """Return an expression for images as [N, C, H, W]."""
        return channels_first_expression(k, self.data_format, images)

    def taps(
        self, k: SourceBuilder, windows: Windows, images: list[Operand], outputs: list[Operand]
    ) -> str:
        """Return a name for the list of views per tap, first of the images, then of the outputs."""
        views = [_list([self.nchw(k, operand) for operand in some]) for some in (images, outputs)]
        text = f"{k.function(pool_taps)}({', '.join([*views, _windows_text(k, windows)])})"
        return k.at_bind(text, [*images, *outputs], "taps")

    def share(self, k: SourceBuilder, windows: Windows, X: Operand) -> str:
        """Return an expression for 1 / divisor of a mean: a number, or one per position."""
        inside = all(window.is_padless for window in windows) and not self.ceil_mode
        if self.divisor:
            return f"1 / {self.divisor}"
        if inside:
            return f"1 / {product([window.kernel for window in windows])}"
        arguments = f"{_windows_text(k, windows)}, {X.type.dtype.numpy.name!r}"
        return k.at_bind(f"{k.function(one_over_covered)}({arguments})", [], "share")

    def cells_text(self, windows: Windows) -> str:
        """Return the cells of adaptive pooling as text."""
        cells = [
            f"[(i*({window.size})//{window.count}, -(-(i + 1)*({window.size})//{window.count}))"
            f" for i in range({window.count})]"
            for window in windows
        ]
        return _list(cells)


class Pool2d(Pooling, op="pool2d"):
    """Pooling of 2-D images [N, C, H, W] (or NHWC)."""

    is_test = attr(False)


class Pool3d(Pooling, op="pool3d"):
    """Pooling of volumes [N, C, D, H, W] (or NDHWC)."""

    image_axes = 3
    strides = attr([1, 1, 1])
    paddings = attr([0, 0, 0])
    data_format = attr("NCDHW")


def _list(items: Sequence[str]) -> str:
    return f"[{', '.join(items)}]"


def _windows_text(k: SourceBuilder, windows: Windows) -> str:
    """Return an expression for the windows in generated code."""
    kind = k.function(Window)
    return _list([f"{kind}({', '.join(map(str, vars(window).values()))})" for window in windows])


def _split(size: Size, count: int) -> Window:
    """Return `count` adjacent cells of an axis; the stride is 0 unless all have one size."""
    kernel = size // count
    stride = kernel if isinstance(kernel, int) and kernel * count == size else 0
    return Window(size, kernel, stride, 1, 0, 0, count)


def _is_uneven(windows: Windows) -> bool:
    """True for cells whose sizes differ, or may differ."""
    return not all(window.stride for window in windows)
