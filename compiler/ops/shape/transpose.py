"""Transposition of axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.analysis.placement import TRITON
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.type_checks import require_same_shape
from compiler.support.thresholds import threshold

MIN_TILE_SIDE = threshold(
    "transpose_side", 16, "adjacent elements of X and of Out",
    "a transposition on a GPU moves tiles from so many on", small=3,
)  # fmt: skip


def moved(k: KernelBuilder, X: DeviceOperand, axes: Sequence[int], Out: DeviceOperand) -> None:
    """Emit a kernel that writes X with its axes in another order.

    If the innermost axis changes, a program moves a tile, so that whole sectors are read and
    written: elements are adjacent in one of the two, the iterations of the loop in the other.
    """
    looped = tile_axes(X.shape, axes)
    others = [axis for axis in (range(len(axes)) if axes[-1] in looped else axes)
              if axis not in looped]  # fmt: skip
    indices = dict(zip(others, k.grid(*(X.shape[axis] for axis in others)), strict=True))
    if looped:
        sizes = [X.shape[axis] for axis in looped]
        indices |= zip(looped, k.unravel(k.loop(product(sizes)), sizes), strict=True)
    value = X[tuple(indices[axis] for axis in range(len(axes)))]
    k.store(Out, tuple(indices[axis] for axis in axes), value)


def tile_axes(shape: Shape, axes: Sequence[int]) -> list[int]:
    """The axes of X that the loop of a tile goes along; none if elements are moved one by one.

    The innermost axis of Out, or, if few elements of X follow it in memory, as the taps of a filter
    do, the axes of these.
    """
    inner, behind = axes[-1], list(range(axes[-1] + 1, len(axes)))
    run, side = product([shape[axis] for axis in behind]), shape[inner]
    least = MIN_TILE_SIDE.value
    if not isinstance(run, int) or not isinstance(side, int) or run == 1 or side < least:
        return []
    return [inner] if run >= least else behind


class Transposing(OpDef):
    """Axis i of Out is axis `axis[i]` of X; Out has no LoD.

    Reference: transpose_op.cc.
    """

    linear_in = (("X",),)
    is_cheap = True
    computes_in_fp32 = False

    X = reads()
    Out = writes(shares_lod=False)
    axis = attr_list(int)
    data_format = attr("AnyLayout")

    def result(self, X: TensorType) -> Shape:
        """Return the shape of Out; raise ShapeError unless `axis` is a permutation."""
        if sorted(self.axis) != list(range(X.rank)):
            raise ShapeError(f"{self.kind}: 'axis' is {self.axis}, expected all axes of X {X}")
        return tuple(X.shape[axis] for axis in self.axis)

    def back(self) -> tuple[int, ...]:
        """Return the inverse permutation."""
        return tuple(self.axis.index(axis) for axis in range(len(self.axis)))

    def epilogue_output(self, target: str | None) -> str:
        """Return Out on a device, where casts and other pointwise ops join the kernel."""
        return "Out" if target == TRITON else ""

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        Out = s.get("Out")
        if Out is not None:
            moved = k.at_bind(f"{X}.transpose({tuple(self.axis)})", [X], "moved")
            k.line(f"np.copyto({Out}, {moved})")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        d_Out, d_X = s.d_Out, s.d_X
        moved = k.at_bind(f"{d_Out}.transpose({self.back()})", [d_Out], "moved")
        k.line(f"np.copyto({d_X}, {moved})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.get("Out")
        if Out is None or k.transposition(self.axis, s.X, Out):
            return
        moved(k, s.X, self.axis, Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        if k.transposition(self.back(), s.d_Out, s.d_X):
            return
        moved(k, s.d_Out, self.back(), s.d_X)


class Transpose(Transposing, op="transpose"):
    """`Transposing` with one output."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X.with_shape(self.result(s.X))

    def numpy(self, X: Array) -> Array:
        return np.transpose(X, self.axis)

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": np.transpose(d_Out, np.argsort(self.axis))}


class Transpose2(Transposing, op="transpose2"):
    """`Transposing` with XShape, of shape (0, *X.shape) without data."""

    XShape = writes(shares_level=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        return {"Out": X.with_shape(self.result(X)), "XShape": X.with_shape((0, *X.shape))}

    def numpy(self, X: Array) -> dict[str, Array]:
        return {"Out": np.transpose(X, self.axis), "XShape": np.empty((0, *X.shape), X.dtype)}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.d_Out.with_shape(s.XShape.shape[1:])
        require_same_shape(
            self.kind + "_grad", d_Out=s.d_Out, transposed=X.with_shape(self.result(X))
        )
        return {"X": X}

    def grad(self, XShape: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": np.transpose(d_Out, np.argsort(self.axis))}
