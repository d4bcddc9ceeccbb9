"""`multiplex`: row-wise selection among several tensors."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.shape.concat import common_shape
from compiler.ops.shared_kernels import fill
from compiler.ops.type_checks import differ


def expect_choices(ids: Array, count: int) -> None:
    """Raise ValueError for a number that is not one of `count` tensors."""
    if ids.size and not 0 <= ids.min() <= ids.max() < count:
        raise ValueError(
            f"multiplex: Ids are {ids.min()} to {ids.max()}, expected 0 to {count - 1}"
        )


class Multiplex(OpDef, op="multiplex"):
    """Out[i] = X[Ids[i]][i]: row i is taken from the tensor with index Ids[i], int32 [rows, 1].

    Reference: multiplex_op.cc.
    """

    lod_source = ""

    X = reads(many=True)
    Ids = reads(no_grad=True)
    Out = writes()

    def infer(self, X: list[TensorType], Ids: TensorType) -> TensorType:
        if len(X) < 2 or X[0].rank < 2:
            raise ShapeError(
                f"multiplex: X has {len(X)} tensors of type {X[0]}, expected two or more matrices"
            )
        if Ids.rank != 2 or differ(Ids.shape[1], 1) or differ(Ids.shape[0], X[0].shape[0]):
            raise ShapeError(f"multiplex: Ids is {Ids}, expected [{X[0].shape[0]}, 1] for X {X[0]}")
        return X[0].with_shape(common_shape(self.kind, X))

    def numpy(self, X: list[Array], Ids: Array) -> Array:
        chosen = Ids.reshape(-1)
        expect_choices(chosen, len(X))
        return np.stack(X)[chosen, np.arange(len(chosen))]

    def grad(self, X: list[Shape], Ids: Array, d_Out: Array) -> dict[str, list[Array]]:
        chosen = Ids.reshape((-1,) + (1,) * (d_Out.ndim - 1))
        return {"X": [np.where(chosen == index, d_Out, 0) for index in range(len(X))]}

    def check_values(self, k: SourceBuilder, X: list[Operand], Ids: Operand) -> None:
        k.line(f"{k.function(expect_choices)}({Ids}, {len(X)})")

    def kernel(
        self, k: KernelBuilder, X: list[DeviceOperand], Ids: DeviceOperand, Out: DeviceOperand
    ) -> None:
        fill(k, Out, 0)
        for number, part in enumerate(X):
            indices = k.grid(*Out.shape)
            chosen = k.equal(Ids[indices[0], 0], number)
            k.store(Out, indices, part.at(*indices, where=chosen, other=0), chosen)

    def kernel_grad(
        self, k: KernelBuilder, Ids: DeviceOperand, d_Out: DeviceOperand, d_X: list[DeviceOperand]
    ) -> None:
        for number, part in enumerate(d_X):
            indices = k.grid(*d_Out.shape)
            chosen = k.equal(Ids[indices[0], 0], number)
            k.store(part, indices, d_Out.at(*indices, where=chosen, other=0))
