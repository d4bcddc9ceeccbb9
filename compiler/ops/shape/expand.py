"""Repetition of elements: expand, tile and broadcasting to another tensor's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.opdef.size_comparison import is_no_multiple, is_not_broadcast
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.axes import Sizes, broadcast_array, int_values, static_count, unknown_shape
from compiler.ops.shared_kernels import tile_gradient, tiled
from compiler.support.free_memory import expect_memory


class TilingOp(OpDef):
    """An op that repeats X along axes, as often as Out's sizes are multiples of X's."""

    X = reads()
    Out = writes()

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        tiled(k, s.X, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        tile_gradient(k, s.d_Out, s.d_X)


def tile(X: Array, times: Sequence[int]) -> Array:
    """Tile X as `np.tile` does, within the free memory."""
    rank = max(X.ndim, len(times))
    sizes = [1] * (rank - X.ndim) + [*X.shape]
    counts = [1] * (rank - len(times)) + [*times]
    expect_memory([n * size for n, size in zip(counts, sizes, strict=True)], 2 * X.itemsize)
    return np.tile(X, times)


def sum_tiles(d_Out: Array, times: Sequence[int]) -> Array:
    """Sum over all copies of a tensor that was tiled `times` times along each axis."""
    pairs = [(count, size // count) for count, size in zip(times, d_Out.shape, strict=True)]
    split = d_Out.reshape([number for pair in pairs for number in pair])
    return split.sum(axis=tuple(range(0, 2 * len(pairs), 2)))


def tile_counts(sizes: Sizes, small: Sizes) -> list[int]:
    """Return the ratio of two shapes by axis; raise ValueError if one is not an integer."""
    times = [size // part if part else 1 for size, part in zip(sizes, small, strict=True)]
    if any(n * part != size for n, part, size in zip(times, small, sizes, strict=True)):
        raise ValueError(f"expand_as: {list(small)} does not divide {list(sizes)}")
    return times


class Expand(TilingOp, op="expand"):
    """Out = X, tiled `expand_times` times along each axis.

    The counts may also come from one tensor, or from one tensor per axis. Reference: expand_op.h.
    """

    linear_in = (("X",),)
    overridden_sizes: ClassVar[Mapping[str, str]] = {
        "ExpandTimes": "expand_times",
        "expand_times_tensor": "expand_times",
    }

    X = reads()
    ExpandTimes = reads(optional=True, no_grad=True)
    expand_times_tensor = reads(optional=True, many=True, no_grad=True)
    Out = writes()
    expand_times = attr_list(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        from_tensor = s.get("ExpandTimes") is not None or bool(s.all("expand_times_tensor"))
        if from_tensor and len(self.expand_times) != X.rank:
            return X.with_shape(unknown_shape(X.rank))
        if len(self.expand_times) != X.rank or (not from_tensor and min(self.expand_times) < 1):
            raise ShapeError(
                f"expand: 'expand_times' is {self.expand_times}, expected {X.rank} numbers from 1 "
                f"up for X {X}"
            )
        pairs = zip(self.expand_times, X.shape, strict=True)
        return X.with_shape([UNKNOWN if n < 1 else size * n for n, size in pairs])

    def numpy(
        self, X: Array, ExpandTimes: Array | None, expand_times_tensor: list[Array] | None
    ) -> Array:
        return tile(X, int_values(ExpandTimes, expand_times_tensor, self.expand_times))

    def grad(
        self,
        X: Shape,
        ExpandTimes: Array | None,
        expand_times_tensor: list[Array] | None,
        d_Out: Array,
    ) -> dict[str, Array]:
        times = int_values(ExpandTimes, expand_times_tensor, self.expand_times)
        return {"X": sum_tiles(d_Out, times)}


class ExpandAs(TilingOp, op="expand_as"):
    """Out = X, tiled to the shape of `target_tensor`.

    Reference: expand_as_op.h.
    """

    lod_source = ""

    X = reads()
    target_tensor = reads(shape_only=True, no_grad=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, target_tensor = s.X, s.target_tensor
        pairs = zip(target_tensor.shape, X.shape, strict=False)
        if X.rank != target_tensor.rank or any(is_no_multiple(*pair) for pair in pairs):
            raise ShapeError(f"expand_as: X {X} does not divide target_tensor {target_tensor}")
        return X.with_shape(target_tensor.shape)

    def numpy(self, X: Array, target_tensor: Shape) -> Array:
        return np.tile(X, tile_counts(target_tensor, X.shape))

    def grad(self, X: Shape, target_tensor: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": sum_tiles(d_Out, tile_counts(d_Out.shape, X))}


# ---- Paddle 2 versions, for models saved there --------------------------------------------------


def sum_broadcast(d_Out: Array, sizes: Sizes) -> Array:
    """Sum a broadcast gradient down to the original shape."""
    leading = d_Out.ndim - len(sizes)
    total = d_Out.sum(axis=tuple(range(leading)))
    axes = tuple(a for a, size in enumerate(sizes) if size == 1 and total.shape[a] != 1)
    return total.sum(axis=axes, keepdims=True)


def require_broadcast(kind: str, X: TensorType, d_Out: TensorType) -> None:
    """Raise ShapeError unless X broadcasts to the shape of the gradient of Out."""
    leading = d_Out.rank - X.rank
    pairs = zip(X.shape, d_Out.shape[max(leading, 0) :], strict=False)
    if leading < 0 or any(is_not_broadcast(*pair) for pair in pairs):
        raise ShapeError(f"{kind}_grad: X is {X}, which does not broadcast to Out@GRAD {d_Out}")


class Tile(TilingOp, op="tile"):
    """Out = X, tiled `repeat_times` times; the shorter of shape and counts gets leading ones.

    Paddle 2 op.
    """

    X = reads()
    RepeatTimes = reads(optional=True, no_grad=True)
    repeat_times_tensor = reads(optional=True, many=True, no_grad=True)
    Out = writes()
    repeat_times = attr_list(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        repeat_times_tensor = s.all("repeat_times_tensor")
        if (RepeatTimes := s.get("RepeatTimes")) is not None:
            count = static_count(self.kind, "RepeatTimes", RepeatTimes)
            return X.with_shape(unknown_shape(max(X.rank, count)))
        if repeat_times_tensor:
            return X.with_shape(unknown_shape(max(X.rank, len(repeat_times_tensor))))
        rank = max(X.rank, len(self.repeat_times))
        times = [1] * (rank - len(self.repeat_times)) + self.repeat_times
        sizes = (1,) * (rank - X.rank) + X.shape
        return X.with_shape([size * n for size, n in zip(sizes, times, strict=True)])

    def numpy(
        self, X: Array, RepeatTimes: Array | None, repeat_times_tensor: list[Array] | None
    ) -> Array:
        return tile(X, int_values(RepeatTimes, repeat_times_tensor, self.repeat_times))

    def grad(
        self,
        X: Shape,
        RepeatTimes: Array | None,
        repeat_times_tensor: list[Array] | None,
        d_Out: Array,
    ) -> dict[str, Array]:
        times = int_values(RepeatTimes, repeat_times_tensor, self.repeat_times)
        whole = sum_tiles(d_Out, [1] * (d_Out.ndim - len(times)) + times)
        return {"X": whole.reshape(whole.shape[whole.ndim - len(X) :])}


def target_sizes(sizes: Sizes, wanted: Sequence[int]) -> list[int]:
    """Return the target sizes, with each -1 replaced by the tensor's size."""
    leading = len(wanted) - len(sizes)
    return [sizes[a - leading] if n == -1 else n for a, n in enumerate(wanted)]


class ExpandInputs(TilingOp):
    """The inputs of `expand_v2`."""

    X = reads()
    Shape = reads(optional=True, no_grad=True)
    expand_shapes_tensor = reads(optional=True, many=True, no_grad=True)
    Out = writes()
    shape = attr_list(int)


class ExpandV2(ExpandInputs, op="expand_v2"):
    """Out = X broadcast to a shape, in which -1 keeps a size. Paddle 2 op."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        Shape = s.get("Shape")
        if Shape is not None and not self.shape:
            return X.with_shape(unknown_shape(static_count(self.kind, "Shape", Shape)))
        from_tensor = Shape is not None or bool(s.all("expand_shapes_tensor"))
        if len(self.shape) < X.rank:
            raise ShapeError(f"expand_v2: X is {X}, but 'shape' {self.shape} has fewer axes")
        leading = len(self.shape) - X.rank
        return X.with_shape(
            [self.size(X, a - leading, n, from_tensor) for a, n in enumerate(self.shape)]
        )

    def size(self, X: TensorType, axis: int, wanted: int, from_tensor: bool) -> Size:
        """Return the size of Out at an axis of X; negative axes are new leading axes."""
        here: Size = X.shape[axis] if axis >= 0 else 1
        if wanted == -1:
            return UNKNOWN if from_tensor else here
        if is_not_broadcast(here, wanted):
            raise ShapeError(f"expand_v2: X is {X}, which does not broadcast to {self.shape}")
        return wanted

    def numpy(
        self, X: Array, Shape: Array | None, expand_shapes_tensor: list[Array] | None
    ) -> Array:
        wanted = int_values(Shape, expand_shapes_tensor, self.shape)
        return np.broadcast_to(X, target_sizes(X.shape, wanted))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        require_broadcast(self.kind, s.X, s.d_Out)
        return {"X": s.X}

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": sum_broadcast(d_Out, X)}


class ExpandAsV2(TilingOp, op="expand_as_v2"):
    """Out = X broadcast to the shape of Y, or to `target_shape`. Paddle 2 op."""

    X = reads()
    Y = reads(optional=True, shape_only=True, no_grad=True)
    target_tensor = reads(optional=True, shape_only=True, no_grad=True)
    Out = writes()
    target_shape = attr_list(int)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        like = s.get("Y") or s.get("target_tensor")
        wanted = like.shape if like is not None else tuple(self.target_shape)
        leading = len(wanted) - X.rank
        pairs = zip(X.shape, wanted[max(leading, 0) :], strict=False)
        if leading < 0 or any(is_not_broadcast(a, b) for a, b in pairs):
            raise ShapeError(f"expand_as_v2: X is {X}, which does not broadcast to {wanted}")
        return X.with_shape(wanted)

    def numpy(self, X: Array, Y: Shape, target_tensor: Shape) -> Array:
        return broadcast_array(X, Y or target_tensor or tuple(self.target_shape))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        require_broadcast(self.kind, s.X, s.d_Out)
        return {"X": s.X}

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": sum_broadcast(d_Out, X)}
