"""Weightless attention ops: sinusoidal positions, similarity focus, and channel Gram matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import Attr, OpDef, reads, reads_lod, required, required_list, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Operand
from compiler.ir.types import Array, TensorType
from compiler.ops.image.windows import flat_image_shape, require_images
from compiler.ops.sequence.sequence_kernels import rows_bounds
from compiler.ops.type_checks import differ, require_same_dtype, shown


def sinusoids(positions: Array, width: int) -> Array:
    """Return sinusoidal position encodings, sines and then cosines: [positions, width]."""
    half = width // 2
    powers = np.arange(half) / max(half - 1, 1) if half > 1 else np.ones(half)
    angles = positions[:, None] / 10000.0**powers
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


class AddPositionEncoding(OpDef, op="add_position_encoding"):
    """Out = alpha * X + beta * sinusoidal encoding of the position.

    X is [N, T, D] with D even, or sequences [total, D], in which positions count from the start of
    each. Reference: add_position_encoding_op.h.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    X_lod = reads_lod("X", optional=True)
    Out = writes()
    alpha: Attr[float] = required(float)
    beta: Attr[float] = required(float)

    def infer(self, X: TensorType) -> TensorType:
        odd = X.rank in (2, 3) and isinstance(X.shape[-1], int) and X.shape[-1] % 2
        if X.rank not in (2, 3) or not X.dtype.is_float or odd:
            expected = "expected [N, T, D] or sequences [total, D], D even"
            raise ShapeError(f"add_position_encoding: X is {X}, {expected}")
        return X

    def numpy(self, X: Array, X_lod: list[Array] | None) -> Array:
        count = int(X.shape[-2])
        positions: Array = np.arange(count)
        if X.ndim == 2 and X_lod:
            starts, lengths = X_lod[-1][:-1], np.diff(X_lod[-1])
            positions = positions - np.repeat(starts, lengths)
        return self.alpha * X + (self.beta * sinusoids(positions, X.shape[-1])).astype(X.dtype)

    def grad(self, d_Out: Array) -> dict[str, Array]:
        return {"X": self.alpha * d_Out}

    def kernel(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        X_lod: list[Operand] | None,
        Out: DeviceOperand,
    ) -> None:
        in_rows = X.type.rank == 2 and X_lod
        bounds = rows_bounds(k, X_lod[-1], X.shape[0]) if in_rows and X_lod else None
        *batch, row, column = k.grid(*X.shape)
        position = row if bounds is None else row - bounds[0, row]
        half = int(str(X.shape[-1])) // 2
        power = k.mod(column, half) * (1.0 / max(half - 1, 1)) if half > 1 else column * 0 + 1.0
        angle = position / k.exp(power * math.log(10000.0))
        wave = k.where(column < half, k.sin(angle), k.cos(angle))
        at = (*batch, row, column)
        k.store(Out, at, X[at] * self.alpha + wave * self.beta)

    def kernel_grad(self, k: KernelBuilder, d_Out: DeviceOperand, d_X: DeviceOperand) -> None:
        indices = k.grid(*d_X.shape)
        k.store(d_X, indices, d_Out[indices] * self.alpha)

    def host_only(self, types: Mapping[str, Any]) -> str:
        named = "X" in types and not isinstance(types["X"].shape[-1], int)
        return "the size of a row is symbolic" if named else ""


def select_row_column_maxima(table: Array) -> Array:
    """Return True at the maximum, the maximum outside its row and column, and so on."""
    chosen = np.zeros(table.shape, np.bool_)
    free_rows, free_columns = np.ones(table.shape[0], np.bool_), np.ones(table.shape[1], np.bool_)
    for position in np.argsort(-table, axis=None, kind="stable"):
        row, column = divmod(int(position), table.shape[1])
        if free_rows[row] and free_columns[column]:
            chosen[row, column] = True
            free_rows[row] = free_columns[column] = False
    return chosen


class SimilarityFocus(OpDef, op="similarity_focus"):
    """Out = 1 in every slice where an element is selected in one of the slices `indexes`.

    X has four axes; `indexes` choose slices along `axis`, each a table. In a table, the maximum is
    selected, then the maximum that shares no row or column with it, and so on. Reference:
    similarity_focus_op.h.
    """

    no_kernel_reason = "elements are selected sequentially, in descending order"

    X = reads(no_grad=True)
    Out = writes()
    axis: Attr[int] = required(int)
    indexes: Attr[list[int]] = required_list(int)

    def infer(self, X: TensorType) -> TensorType:
        require_images(self.kind, "X", X)
        if self.axis not in (1, 2, 3):
            raise BadAttribute(f"similarity_focus: axis is {self.axis}, expected 1, 2 or 3")
        size = X.shape[self.axis]
        if not self.indexes or (isinstance(size, int) and not _fit(self.indexes, size)):
            actual = f"similarity_focus: indexes are {self.indexes}"
            raise BadAttribute(f"{actual}, expected slices of axis {self.axis} of X {X}")
        return X

    def numpy(self, X: Array) -> Array:
        permuted = np.moveaxis(X, self.axis, 1)
        chosen = np.zeros((len(X), 1, *permuted.shape[2:]), np.bool_)
        for tables, mask in zip(permuted, chosen, strict=True):
            for index in self.indexes:
                mask[0] |= select_row_column_maxima(tables[index])
        spread = np.broadcast_to(np.moveaxis(chosen, 1, self.axis), X.shape)
        return spread.astype(X.dtype)


def _fit(indexes: Sequence[int], size: int) -> bool:
    return all(0 <= index < size for index in indexes)


class Fsp(OpDef, op="fsp"):
    """Out[n, i, j] = the mean over positions of X[n, i] * Y[n, j]: flow of solution procedure.

    X is [N, Cx, H, W] and Y [N, Cy, H, W]. Reference: fsp_op.h.
    """

    X = reads()
    Y = reads()
    Out = writes()

    def infer(self, X: TensorType, Y: TensorType) -> TensorType:
        require_images(self.kind, "X", X)
        require_images(self.kind, "Y", Y)
        require_same_dtype(self.kind, X=X, Y=Y)
        if any(differ(X.shape[axis], Y.shape[axis]) for axis in (0, 2, 3)):
            raise ShapeError(f"fsp: {shown(X=X, Y=Y)} may differ only in their channels")
        return X.with_shape((X.shape[0], X.shape[1], Y.shape[1]))

    def numpy(self, X: Array, Y: Array) -> Array:
        positions = X.shape[2] * X.shape[3]
        x, y = (array.reshape(*array.shape[:2], positions) for array in (X, Y))
        return x @ y.mT / x.dtype.type(x.shape[2])

    def grad(self, X: Array, Y: Array, d_Out: Array) -> dict[str, Array]:
        positions = X.shape[2] * X.shape[3]
        x, y = (array.reshape(*array.shape[:2], positions) for array in (X, Y))
        share = d_Out / x.dtype.type(x.shape[2])
        return {"X": (share @ y).reshape(X.shape), "Y": (share.mT @ x).reshape(Y.shape)}

    def kernel(
        self, k: KernelBuilder, X: DeviceOperand, Y: DeviceOperand, Out: DeviceOperand
    ) -> None:
        x, y, positions = (
            *(operand.reshaped(flat_image_shape(operand.shape)) for operand in (X, Y)),
            X.shape[2:],
        )
        (n,), i, j, left, right = k.tiles(Out.shape[:1], X.shape[1], Y.shape[1], product(positions))
        share = k.astype(k.size(product(positions)), X.type.dtype)
        k.store(Out, (n, i, j), k.contract(x[n, i, left], y[n, j, right]) / share)

    def kernel_grad(
        self,
        k: KernelBuilder,
        X: DeviceOperand,
        Y: DeviceOperand,
        d_Out: DeviceOperand,
        d_X: DeviceOperand | None,
        d_Y: DeviceOperand | None,
    ) -> None:
        for other, result, is_transposed in ((Y, d_X, False), (X, d_Y, True)):
            if result is None:
                continue
            table, rest = (
                flat_image_shape(result.shape),
                other.reshaped(flat_image_shape(other.shape)),
            )
            (n,), c, p, left, right = k.tiles(table[:1], *table[1:], other.shape[1])
            upstream = d_Out[n, left, c] if is_transposed else d_Out[n, c, left]
            share = k.astype(k.size(table[2]), result.type.dtype)
            k.store(
                result.reshaped(table), (n, c, p), k.contract(upstream, rest[n, right, p]) / share
            )
