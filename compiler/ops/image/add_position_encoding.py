"""Sinusoidal position encodings, added to sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import Attr, OpDef, Slots, reads, reads_lod, required, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, TensorType
from compiler.ops.sequence.sequence_kernels import rows_bounds


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

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
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

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        X_lod = s.host.all("X_lod")
        in_rows = X.type.rank == 2 and X_lod
        bounds = rows_bounds(k, X_lod[-1], X.shape[0]) if in_rows and X_lod else None
        *batch, row, column = k.grid(*X.shape)
        position = row if bounds is None else row - bounds[0, row]
        half = int(str(X.shape[-1])) // 2
        power = k.mod(column, half) * (1.0 / max(half - 1, 1)) if half > 1 else column * 0 + 1.0
        angle = position / k.exp(power * math.log(10000.0))
        wave = k.where(column < half, k.sin(angle), k.cos(angle))
        at = (*batch, row, column)
        k.store(s.Out, at, X[at] * self.alpha + wave * self.beta)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        indices = k.grid(*s.d_X.shape)
        k.store(s.d_X, indices, s.d_Out[indices] * self.alpha)

    def host_only(self, types: Mapping[str, Any]) -> str:
        named = "X" in types and not isinstance(types["X"].shape[-1], int)
        return "the size of a row is symbolic" if named else ""
