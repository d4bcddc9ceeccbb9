"""Elements selected by a condition: where and masked select."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Pointwise, Slots, Value, Xp, reads, writes
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.axes import zeros_shaped
from compiler.ops.type_checks import require_dtype, require_same_dtype, require_same_shape


class Where(Pointwise, op="where"):
    """Out = X where Condition is true, else Y; all have equal shapes. Reference: where_op.cc."""

    X = reads()
    Y = reads()
    Condition = reads(no_grad=True)
    Out = writes()

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of X; raise ShapeError if shapes or dtypes differ."""
        require_dtype(self.kind, "Condition", types["Condition"], DType.BOOL)
        require_same_dtype(self.kind, X=types["X"], Y=types["Y"])
        require_same_shape(self.kind, **{slot: types[slot] for slot in ("X", "Y", "Condition")})
        return super().infer_types(types)

    def compute(self, xp: Xp, X: Value, Y: Value, Condition: Value) -> Value:
        return xp.where(Condition, X, Y)

    def grad(self, xp: Xp, X: Shape, Y: Shape, Condition: Value, d_Out: Value) -> Value:
        return {"X": xp.where(Condition, d_Out, 0.0), "Y": xp.where(Condition, 0.0, d_Out)}


class WhereIndex(OpDef, op="where_index"):
    """Out = the indices of the non-zero elements of Condition, int64 [count, axes].

    Reference: where_index_op.cc.
    """

    no_kernel_reason = "the number of elements is data-dependent"

    lod_source = ""

    Condition = reads(no_grad=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(DType.INT64, (UNKNOWN, s.Condition.rank))

    def numpy(self, Condition: Array) -> Array:
        return np.argwhere(Condition)


class MaskedSelect(OpDef, op="masked_select"):
    """Y = the elements of X where Mask is true, [count]. Paddle 2 op, for models saved there."""

    no_kernel_reason = "the number of elements is data-dependent"

    lod_source = ""

    X = reads()
    Mask = reads(no_grad=True)
    Y = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_dtype(self.kind, "Mask", s.Mask, DType.BOOL)
        require_same_shape(self.kind, X=s.X, Mask=s.Mask)
        return s.X.with_shape([UNKNOWN])

    def numpy(self, X: Array, Mask: Array) -> Array:
        return X[Mask]

    def grad(self, X: Shape, Mask: Array, d_Y: Array) -> dict[str, Array]:
        d_X = zeros_shaped(X, d_Y)
        d_X[Mask] = d_Y
        return {"X": d_X}
