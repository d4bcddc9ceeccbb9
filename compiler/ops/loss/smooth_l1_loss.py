"""Smooth L1: squared near 0, absolute beyond."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
)
from compiler.ir.types import Array, TensorType
from compiler.ops.math.matmul import as_matrix
from compiler.ops.type_checks import (
    require_same_dtype,
    require_same_shape,
    shown,
)


def small_differences(difference: Array, sigma: float) -> tuple[Array, Array]:
    """Return the mask of small differences, and sigma² in their dtype."""
    square = np.asarray(sigma * sigma, difference.dtype)
    return np.abs(difference) < 1.0 / square, square


class SmoothL1Loss(OpDef, op="smooth_l1_loss"):
    """Out = the smooth L1 loss of each row, with Diff d = (X - Y) * InsideWeight.

    Each element contributes (sigma * d)² / 2 if |d| < 1 / sigma², else |d| - 1 / (2 sigma²), times
    OutsideWeight. All inputs are [N, ...], Out is [N, 1]; the weights must be given both or not at
    all. Reference: smooth_l1_loss_op.h.
    """

    lod_source = ""

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Diff", "Y": "Diff"}

    X = reads()
    Y = reads()
    InsideWeight = reads(optional=True, no_grad=True)
    OutsideWeight = reads(optional=True, no_grad=True)
    Diff = writes()
    Out = writes()
    sigma = attr(1.0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        weights = {"InsideWeight": s.get("InsideWeight"), "OutsideWeight": s.get("OutsideWeight")}
        present = {slot: type for slot, type in weights.items() if type is not None}
        if X.rank < 2:
            raise ShapeError(f"{self.kind}: X is {X}, expected at least 2 axes")
        if len(present) == 1:
            raise ShapeError(f"{self.kind}: {shown(**present)} needs both weights")
        require_same_shape(self.kind, X=X, Y=s.Y, **present)
        require_same_dtype(self.kind, X=X, Y=s.Y, **present)
        return {"Diff": X, "Out": X.with_shape((X.shape[0], 1))}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": s.Diff, "Y": s.Diff}

    def numpy(
        self, X: Array, Y: Array, InsideWeight: Array | None, OutsideWeight: Array | None
    ) -> dict[str, Array]:
        difference = X - Y if InsideWeight is None else (X - Y) * InsideWeight
        small, square = small_differences(difference, self.sigma)
        far = np.abs(difference) - 0.5 / square
        loss = np.where(small, 0.5 * square * difference * difference, far)
        weighted = loss if OutsideWeight is None else loss * OutsideWeight
        return {"Diff": difference, "Out": as_matrix(weighted, 1).sum(1, keepdims=True)}

    def grad(
        self,
        Diff: Array,
        InsideWeight: Array | None,
        OutsideWeight: Array | None,
        d_Out: Array,
    ) -> dict[str, Array]:
        small, square = small_differences(Diff, self.sigma)
        slope = np.where(small, square * Diff, np.sign(Diff))
        for weight in (InsideWeight, OutsideWeight):
            slope = slope if weight is None else slope * weight
        pull = slope * d_Out.reshape(-1, *[1] * (Diff.ndim - 1))
        return {"X": pull, "Y": -pull}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        table = (X.shape[0], product(X.shape[1:]))
        (i,) = k.grid(table[0])
        r, square = k.loop(table[1]), self.sigma * self.sigma
        difference = X.reshaped(table)[i, r] - s.Y.reshaped(table)[i, r]
        if (InsideWeight := s.get("InsideWeight")) is not None:
            difference = difference * InsideWeight.reshaped(table)[i, r]
        size = k.absolute(difference)
        loss = k.where(
            size < 1.0 / square, 0.5 * square * difference * difference, size - 0.5 / square
        )
        if (OutsideWeight := s.get("OutsideWeight")) is not None:
            loss = loss * OutsideWeight.reshaped(table)[i, r]
        if (Diff := s.get("Diff")) is not None:
            k.store(Diff.reshaped(table), (i, r), difference)
        if (Out := s.get("Out")) is not None:
            k.store(Out, (i, 0), k.sum(loss, r))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        indices, square = k.grid(*s.Diff.shape), self.sigma * self.sigma
        difference = s.Diff[indices]
        slope = k.where(
            k.absolute(difference) < 1.0 / square, square * difference, k.sign(difference)
        )
        for weight in (s.get("InsideWeight"), s.get("OutsideWeight")):
            slope = slope if weight is None else slope * weight[indices]
        pull = slope * s.d_Out[indices[0], 0]
        for result, value in ((s.get("d_X"), pull), (s.get("d_Y"), -pull)):
            if result is not None:
                k.store(result, indices, value)
