"""`row_sequences`: the LoD of the results of fused pooling."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, Slots, reads, writes, writes_lod
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
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

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        return {"Out": s.X, "Out_lod": [offsets_of(s.X.shape[0])]}

    def numpy(self, X: Array) -> dict[str, object]:
        return {"Out": X, "Out_lod": [one_row_offsets(len(X))]}

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": d_Out}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        k.write_host(s.host.all("Out_lod")[0], k.on_host(one_row_offsets, s.X.shape[0]))
        copy(k, s.X, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        copy(k, s.d_Out, s.d_X)
