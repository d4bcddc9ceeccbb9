"""Logical reductions over axes: `reduce_all` and `reduce_any`."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import Slots
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.reduce import AxisReduction, UfuncReduction, normalize_axes, reduce_axes
from compiler.ops.type_checks import require_dtype


class LogicalReduction(AxisReduction, UfuncReduction):
    """A reduction of booleans over axes."""

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_dtype(self.kind, "X", s.X, DType.BOOL)
        return super().infer(s).with_dtype(DType.BOOL)


class ReduceAll(LogicalReduction, op="reduce_all"):
    """Out = whether all elements of X along the axes are true."""

    ufunc = "logical_and"

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        return reduce_axes(np.logical_and, X, axes, self.keep_dim)


class ReduceAny(LogicalReduction, op="reduce_any"):
    """Out = whether any element of X along the axes is true."""

    ufunc = "logical_or"

    def numpy(self, X: Array) -> Array:
        axes = normalize_axes(X.ndim, self.dim, self.reduce_all)
        return reduce_axes(np.logical_or, X, axes, self.keep_dim)
