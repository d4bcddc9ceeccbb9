"""`multiplex`: row-wise selection among several tensors."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
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

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Ids = s.Ids
        X = s.all("X")
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

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Ids = s.Ids
        X = s.all("X")
        k.line(f"{k.function(expect_choices)}({Ids}, {len(X)})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        fill(k, Out, 0)
        for number, part in enumerate(s.all("X")):
            indices = k.grid(*Out.shape)
            chosen = k.equal(s.Ids[indices[0], 0], number)
            k.store(Out, indices, part.at(*indices, where=chosen, other=0), chosen)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        for number, part in enumerate(s.all("d_X")):
            indices = k.grid(*s.d_Out.shape)
            chosen = k.equal(s.Ids[indices[0], 0], number)
            k.store(part, indices, s.d_Out.at(*indices, where=chosen, other=0))
