"""`cvm`: embeddings whose first two columns are show and click counts."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.sequence.sequence_kernels import owner_rows
from compiler.ops.shared_kernels import inside
from compiler.ops.type_checks import differ, numeric, require_same_dtype


def row_counts(CVM: Array, rows: int, X_lod: list[Array] | None) -> Array:
    """Return the show and click counts of each row: its sequence's, or its own without a LoD.

    Raises ValueError if CVM has too few rows.
    """
    lengths = [1] * rows if X_lod is None else np.diff(X_lod[0])
    if len(CVM) < len(lengths):
        raise ValueError(f"cvm: CVM has {len(CVM)} rows, expected {len(lengths)}")
    return np.repeat(CVM[: len(lengths)], lengths, axis=0)


class ShowClick(OpDef, op="cvm"):
    """Y = X [rows, 2 + width] with show and click as log(show + 1), log(click + 1) - log(show + 1).

    Without `use_cvm` Y omits them: [rows, width]. In either case their columns of X@GRAD are CVM
    itself, [rows, 2] or one row per sequence, which a parameter server uses as counts.
    Reference: cvm_op.h.
    """

    X = reads()
    X_lod = reads_lod("X", optional=True)
    CVM = reads(no_grad=True)
    Y = writes()
    use_cvm = attr(True)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        X_lod = s.all("X_lod")
        width = X.shape[1] if X.rank == 2 else 0
        if isinstance(width, int) and width < 2:
            raise ShapeError(f"cvm: X is {X}, expected [rows, 2 + width]")
        if X_lod and len(X_lod) > 1:
            raise ShapeError(f"cvm: X has {len(X_lod)} LoD levels, expected 1 or none")
        return X if self.use_cvm else X.with_shape((X.shape[0], width - 2))

    def numpy(self, X: Array) -> Array:
        if not self.use_cvm:
            return X[:, 2:].copy()
        Y = X.copy()
        Y[:, :2] = np.log(X[:, :2] + 1)
        Y[:, 1] -= Y[:, 0]
        return Y

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, CVM = s.X, s.CVM
        X_lod = s.all("X_lod")
        require_same_dtype("cvm_grad", X=X, CVM=CVM, **{"Y@GRAD": s.d_Y})
        rows = X_lod[0].shape[0] - 1 if X_lod else X.shape[0]
        if CVM.rank != 2 or differ(CVM.shape[1], 2) or is_less(CVM.shape[0], rows):
            raise ShapeError(f"cvm_grad: CVM is {CVM}, expected [{rows}, 2]")
        return {"X": X}

    def grad(self, X: Shape, X_lod: list[Array] | None, CVM: Array, d_Y: Array) -> dict[str, Array]:
        rows, _ = numeric(X)
        rest = d_Y[:, 2:] if self.use_cvm else d_Y
        return {"X": np.concatenate([row_counts(CVM, rows, X_lod), rest], axis=1)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Y = s.X, s.Y
        i, j = k.grid(*Y.shape)
        if not self.use_cvm:
            k.store(Y, (i, j), X[i, j + 2])
            return
        show, click = (k.log(X[i, column] + 1.0) for column in (0, 1))
        counts = k.where(k.equal(j, 0), show, click - show)
        k.store(Y, (i, j), k.where(j < 2, counts, X[i, j]))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_X = s.d_X
        X_lod = s.host.all("X_lod")
        owners = owner_rows(k, X_lod[0], d_X.shape[0]) if X_lod else None
        i, j = k.grid(*d_X.shape)
        row = i if owners is None else owners[i]
        counts = s.CVM.at(row, j, where=(j < 2) & inside(k, row, s.CVM.shape[0]), other=0)
        rest = s.d_Y.at(i, j if self.use_cvm else j - 2, where=j >= 2, other=0)
        k.store(d_X, (i, j), k.where(j < 2, counts, rest))
