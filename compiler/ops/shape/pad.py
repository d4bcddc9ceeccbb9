"""Padding by a constant, by edge values, or by reflection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, Types, attr, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.image.layouts import permuted_layout
from compiler.ops.math.axes import Sizes, int_values, zeros_shaped
from compiler.ops.shared_kernels import fill, window
from compiler.ops.type_checks import require_same_dtype
from compiler.support.free_memory import expect_memory

Edges = list[tuple[int, int]]
"""Number of elements added before and after each axis; negative numbers crop."""


# ---- what bodies use ----------------------------------------------------------------------------


def paired_edges(paddings: Sequence[int]) -> Edges:
    """Group a flat list of (before, after) numbers by axis."""
    return [(paddings[i], paddings[i + 1]) for i in range(0, len(paddings), 2)]


def pad_slices(
    sizes: Sizes, edges: Edges
) -> tuple[list[int], tuple[slice, ...], tuple[slice, ...]]:
    """Return the padded sizes, the slices of X in the padded tensor, and those kept of X."""
    outer = [size + sum(edge) for size, edge in zip(sizes, edges, strict=True)]
    inner = tuple(slice(max(a, 0), n - max(b, 0)) for n, (a, b) in zip(outer, edges, strict=True))
    part = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(sizes, edges, strict=True))
    return outer, inner, part


def padded_constant(X: Array, edges: Edges, value: float) -> Array:
    """Pad X with a constant."""
    outer, inner, part = pad_slices(X.shape, edges)
    expect_memory(outer, X.itemsize)
    Out = np.full(outer, value, X.dtype)
    Out[inner] = X[part]
    return Out


def constant_pad_gradient(d_Out: Array, sizes: Sizes, edges: Edges) -> Array:
    """Return the gradient of constant padding."""
    _, inner, part = pad_slices(sizes, edges)
    d_X = zeros_shaped(sizes, d_Out)
    d_X[part] = d_Out[inner]
    return d_X


def source_indices(size: int, before: int, after: int, mode: str) -> Array:
    """Return the source index of each index of a padded axis."""
    expect_memory((before + size + after,), 32)
    indices = np.arange(-before, size + after)
    if mode in ("edge", "replicate"):
        return np.clip(indices, 0, size - 1)
    if mode == "circular":
        return indices % size
    indices = np.abs(indices)
    indices = np.minimum(indices, 2 * (size - 1) - indices)
    if indices.size and indices.min() < 0:
        raise ValueError(
            f"pad: {before} and {after} exceed what an axis of size {size} can reflect"
        )
    return indices


def pad_from_self(X: Array, edges: Edges, mode: str) -> Array:
    """Pad X with its own elements."""
    expect_memory(pad_slices(X.shape, edges)[0], 2 * X.itemsize)
    Out = X
    for axis, (before, after) in enumerate(edges):
        if before or after:
            Out = np.take(Out, source_indices(X.shape[axis], before, after, mode), axis=axis)
    return Out


def self_pad_gradient(d_Out: Array, sizes: Sizes, edges: Edges, mode: str) -> Array:
    """Return the gradient of padding with own elements."""
    for axis, (before, after) in enumerate(edges):
        if before or after:
            whole = np.moveaxis(d_Out, axis, 0)
            total = np.zeros((sizes[axis], *whole.shape[1:]), d_Out.dtype)
            np.add.at(total, source_indices(sizes[axis], before, after, mode), whole)
            d_Out = np.moveaxis(total, 0, axis)
    return d_Out


def spatial_edges(paddings: list[int], data_format: str) -> Edges:
    """Return the edges of all axes of images from those of the spatial axes."""
    inner = paired_edges(paddings)
    last = data_format.endswith("C")
    return [(0, 0), *inner, (0, 0)] if last else [(0, 0), (0, 0), *inner]


# ---- ops ----------------------------------------------------------------------------------------


def padded_type(op: str, X: TensorType, edges: Edges) -> TensorType:
    """Return the padded type of X; raise ShapeError for negative sizes."""
    sizes = [size + sum(edge) for size, edge in zip(X.shape, edges, strict=True)]
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ShapeError(f"{op}: X is {X}, but 'paddings' make a size negative")
    return X.with_shape(sizes)


class Pad(OpDef, op="pad"):
    """Out = X padded with `pad_value`; `paddings` has (before, after) per axis.

    Reference: pad_op.h.
    """

    X = reads()
    Out = writes()
    paddings = attr_list(int)
    pad_value = attr(0.0)

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        paddings = [n for axis in order for n in self.paddings[2 * axis : 2 * axis + 2]]
        return PermutedOp(frozenset({"X", "Out"}), {"paddings": paddings})

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        if len(self.paddings) != 2 * X.rank or min(self.paddings, default=0) < 0:
            raise BadAttribute(
                f"pad: 'paddings' is {self.paddings}, expected {2 * X.rank} numbers >= 0 for X {X}"
            )
        return padded_type(self.kind, X, paired_edges(self.paddings))

    def numpy(self, X: Array) -> Array:
        return padded_constant(X, paired_edges(self.paddings), self.pad_value)

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {
            "X": padded_type(
                self.kind, s.d_Out, paired_edges([-number for number in self.paddings])
            )
        }

    def grad(self, d_Out: Array) -> dict[str, Array]:
        return {"X": padded_constant(d_Out, paired_edges([-n for n in self.paddings]), 0.0)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        window(k, s.X, s.Out, [-before for before in self.paddings[::2]], self.pad_value)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        window(k, s.d_Out, s.d_X, self.paddings[::2])


class SpatialPad(OpDef):
    """Out = X padded along the spatial axes; `mode` selects the fill.

    "constant" fills with a number, "edge" with the nearest element, "reflect" with the mirror image
    excluding the border element, "circular" with the opposite end.
    """

    modes = ("constant", "reflect", "edge")
    axes = 2

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        layout = self.attributes["data_format"]
        return permuted_layout("data_format", layout, order, "X", "Out")

    def result(self, X: TensorType, paddings: Sequence[int], from_tensor: bool) -> TensorType:
        """Return the type of Out; raise errors for unknown modes, layouts or padding counts."""
        mode, layout = self.attributes["mode"], self.attributes["data_format"]
        if mode not in self.modes or layout not in ("NCHW", "NHWC", "NCDHW", "NDHWC"):
            raise BadAttribute(f"{self.kind}: 'mode' is {mode!r} and 'data_format' {layout!r}")
        if X.rank != self.axes + 2 or not (from_tensor or len(paddings) == 2 * self.axes):
            raise ShapeError(
                f"{self.kind}: X is {X} and 'paddings' {list(paddings)}, expected "
                f"{self.axes + 2} axes and {2 * self.axes} numbers"
            )
        if from_tensor:
            return X.with_shape(self.unknown(X, layout))
        edges = self.edges(list(paddings), layout)
        if mode != "constant":
            self.check_sources(X, edges, mode == "reflect")
        return padded_type(self.kind, X, edges)

    def unknown(self, X: TensorType, layout: str) -> list[Size]:
        """Return the sizes of Out for data-dependent paddings."""
        edges = spatial_edges([1] * (2 * self.axes), layout)
        return [UNKNOWN if any(edge) else n for n, edge in zip(X.shape, edges, strict=True)]

    def edges(self, paddings: list[int], layout: str) -> Edges:
        """Return the edges of all axes."""
        return spatial_edges(paddings, layout)

    def check_sources(self, X: TensorType, edges: Edges, reflects: bool) -> None:
        """Raise ShapeError if an axis is too short to be padded with its own elements."""
        for size, (before, after) in zip(X.shape, edges, strict=True):
            pads, least = before or after, 1 + (after if reflects else 0)
            if pads and (is_less(size, least) or (reflects and is_less(2 * size, 2 + before))):
                raise ShapeError(
                    f"{self.kind}: X is {X}: {before} and {after} exceed what an axis of size "
                    f"{size} can {'reflect' if reflects else 'repeat'}"
                )

    def pad_kernel(
        self, k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand, edges: Edges, value: float
    ) -> None:
        """Emit a kernel for Out = X padded according to `mode`."""
        before = [-first for first, _ in edges]
        if self.attributes["mode"] == "constant":
            window(k, X, Out, before, value)
            return
        indices = k.grid(*Out.shape)
        k.store(Out, indices, X[self.load_indices(k, indices, X.shape, edges)])

    def pad_grad_kernels(
        self, k: KernelBuilder, d_Out: DeviceOperand, d_X: DeviceOperand, edges: Edges
    ) -> None:
        """Emit kernels for the gradient of X; gradients of repeated elements are summed."""
        if self.attributes["mode"] == "constant":
            window(k, d_Out, d_X, [first for first, _ in edges])
            return
        fill(k, d_X, 0)
        indices = k.grid(*d_Out.shape)
        k.add(d_X, self.load_indices(k, indices, d_X.shape, edges), d_Out[indices])

    def load_indices(
        self, k: KernelBuilder, indices: Sequence[Number], sizes: Shape, edges: Edges
    ) -> tuple[Number, ...]:
        """Return the source indices in X of each index of the padded tensor."""
        triples = zip(indices, sizes, edges, strict=True)
        return tuple(
            self.load_index(k, i - edge[0], size) if any(edge) else i for i, size, edge in triples
        )

    def load_index(self, k: KernelBuilder, index: Number, size: Size) -> Number:
        """Map an index along an axis, possibly out of range, to its source index."""
        mode, last = self.attributes["mode"], k.size(size) - 1
        if mode in ("edge", "replicate"):
            return k.minimum(k.maximum(index, 0), last)
        if mode == "circular":
            return k.remainder(index, k.size(size))
        away = k.absolute(index)
        return k.minimum(away, last * 2 - away)


class Pad2d(SpatialPad, op="pad2d"):
    """`SpatialPad` by [top, bottom, left, right], from `paddings` or the tensor Paddings.

    Reference: pad2d_op.cc.
    """

    X = reads()
    Paddings = reads(optional=True, no_grad=True)
    Out = writes()
    paddings = attr([0, 0, 0, 0])
    mode = attr("constant")
    pad_value = attr(0.0)
    data_format = attr("NCHW")

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return self.result(s.X, self.paddings, s.get("Paddings") is not None)

    def numpy(self, X: Array, Paddings: Array | None) -> Array:
        edges = spatial_edges(int_values(Paddings, None, self.paddings), self.data_format)
        if self.mode == "constant":
            return padded_constant(X, edges, self.pad_value)
        return pad_from_self(X, edges, self.mode)

    def grad(self, X: Shape, Paddings: Array | None, d_Out: Array) -> dict[str, Array]:
        edges = spatial_edges(int_values(Paddings, None, self.paddings), self.data_format)
        if self.mode == "constant":
            return {"X": constant_pad_gradient(d_Out, X, edges)}
        return {"X": self_pad_gradient(d_Out, X, edges, self.mode)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.pad_kernel(
            k, s.X, s.Out, spatial_edges(self.paddings, self.data_format), self.pad_value
        )

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        self.pad_grad_kernels(k, s.d_Out, s.d_X, spatial_edges(self.paddings, self.data_format))


def front_first(paddings: list[int]) -> list[int]:
    """Reorder [left, right, top, bottom, front, back] by axis, front first."""
    return paddings[4:6] + paddings[2:4] + paddings[0:2]


class Pad3d(SpatialPad, op="pad3d"):
    """`SpatialPad` by [left, right, top, bottom, front, back]. Paddle 2 op."""

    modes = ("constant", "reflect", "replicate", "circular")
    axes = 3

    X = reads()
    Paddings = reads(optional=True, no_grad=True)
    Out = writes()
    paddings = attr([0, 0, 0, 0, 0, 0])
    mode = attr("constant")
    value = attr(0.0)
    data_format = attr("NCDHW")

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return self.result(s.X, front_first(self.paddings), s.get("Paddings") is not None)

    def numpy(self, X: Array, Paddings: Array | None) -> Array:
        numbers = front_first(int_values(Paddings, None, self.paddings))
        edges = spatial_edges(numbers, self.data_format)
        if self.mode == "constant":
            return padded_constant(X, edges, self.value)
        return pad_from_self(X, edges, self.mode)

    def grad(self, X: Shape, Paddings: Array | None, d_Out: Array) -> dict[str, Array]:
        numbers = front_first(int_values(Paddings, None, self.paddings))
        edges = spatial_edges(numbers, self.data_format)
        if self.mode == "constant":
            return {"X": constant_pad_gradient(d_Out, X, edges)}
        return {"X": self_pad_gradient(d_Out, X, edges, self.mode)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        edges = spatial_edges(front_first(self.paddings), self.data_format)
        self.pad_kernel(k, s.X, s.Out, edges, self.value)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        edges = spatial_edges(front_first(self.paddings), self.data_format)
        self.pad_grad_kernels(k, s.d_Out, s.d_X, edges)


def trailing_edges(outer: Sizes, inner: Sizes) -> Edges:
    """Return the edges that pad a shape to a larger one at the end of each axis."""
    return [(0, size - part) for size, part in zip(outer, inner, strict=True)]


class PadConstantLike(OpDef, op="pad_constant_like"):
    """Out = Y padded to the shape of X with `pad_value` at the end of each axis.

    Reference: pad_constant_like_op.h.
    """

    X = reads(shape_only=True, no_grad=True)
    Y = reads()
    Out = writes()
    pad_value = attr(0.0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Y = s.X, s.Y
        pairs = list(zip(X.shape, Y.shape, strict=False))
        short = any(isinstance(a, int) and isinstance(b, int) and a < b for a, b in pairs)
        if X.rank != Y.rank or short:
            raise ShapeError(f"pad_constant_like: Y {Y} is larger than X {X}")
        require_same_dtype(self.kind, X=X, Y=Y)
        return X

    def numpy(self, X: Shape, Y: Array) -> Array:
        return padded_constant(Y, trailing_edges(X, Y.shape), self.pad_value)

    def grad(self, Y: Shape, d_Out: Array) -> dict[str, Array]:
        return {"Y": constant_pad_gradient(d_Out, Y, trailing_edges(d_Out.shape, Y))}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        window(k, s.Y, s.Out, [0] * s.Y.type.rank, self.pad_value)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        window(k, s.d_Out, s.d_Y, [0] * s.d_Y.type.rank)
