"""`meshgrid`: vectors broadcast over a grid."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.reduce import sum_axes
from compiler.ops.shape.concat import named_slots
from compiler.ops.type_checks import require_same_dtype


class Meshgrid(OpDef, op="meshgrid"):
    """Out[i] = vector X[i], broadcast over a grid whose axis i it indexes.

    Reference: meshgrid_op.cc.
    """

    lod_source = ""

    X = reads(many=True)
    Out = writes(many=True)

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        X = s.all("X")
        if not 2 <= len(X) <= 6 or any(tensor_type.rank != 1 for tensor_type in X):
            raise ShapeError(f"meshgrid: X is {', '.join(map(str, X))}, expected 2 to 6 vectors")
        require_same_dtype(self.kind, **named_slots(X))
        return {"Out": [X[0].with_shape([tensor_type.shape[0] for tensor_type in X])] * len(X)}

    def numpy(self, X: list[Array]) -> dict[str, list[Array]]:
        return {"Out": list(np.meshgrid(*X, indexing="ij"))}

    def grad(self, X: list[Shape], d_Out: list[Array]) -> dict[str, list[Array]]:
        return {
            "X": [
                array.sum(axis=tuple(other for other in range(len(X)) if other != axis))
                for axis, array in enumerate(d_Out)
            ]
        }

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        for axis, (vector, out) in enumerate(zip(s.all("X"), s.all("Out"), strict=True)):
            indices = k.grid(*out.shape)
            k.store(out, indices, vector[indices[axis]])

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Out = s.all("d_Out")
        for axis, (upstream, vector) in enumerate(zip(d_Out, s.all("d_X"), strict=True)):
            sum_axes(k, upstream, tuple(a for a in range(len(d_Out)) if a != axis), vector)
