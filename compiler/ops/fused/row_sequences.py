"""`row_sequences`: the LoD of the results of fused pooling."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, reads, writes, writes_lod
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Operand
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.sequence.offsets import offsets_of
from compiler.ops.shared_kernels import copy


def one_row_offsets(rows: int) -> Array:
    """Return the offsets of `rows` sequences of one row."""
    return np.arange(rows + 1, dtype=np.int64)


class RowSequences(OpDef, op="row_sequences"):
    """Out = X with one LoD level of one-row sequences."""

    lod_source = ""

    X = reads()
    Out = writes(inplace="X")
    Out_lod = writes_lod("Out")

    def infer(self, X: TensorType) -> dict[str, object]:
        return {"Out": X, "Out_lod": [offsets_of(X.shape[0])]}

    def numpy(self, X: Array) -> dict[str, object]:
        return {"Out": X, "Out_lod": [one_row_offsets(len(X))]}

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": d_Out}

    def kernel(
        self, k: KernelBuilder, X: DeviceOperand, Out: DeviceOperand, Out_lod: list[Operand]
    ) -> None:
        k.write_host(Out_lod[0], k.on_host(one_row_offsets, X.shape[0]))
        copy(k, X, Out)

    def kernel_grad(self, k: KernelBuilder, d_Out: DeviceOperand, d_X: DeviceOperand) -> None:
        copy(k, d_Out, d_X)
