"""`rank_attention`: rows times matrices selected by the ranks of pairs of items."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, shown


def rank_blocks(RankOffset: Array, rows: int) -> tuple[Array, Array, Array]:
    """Return row of Out, row of X and block of RankParam of each product.

    Returns three int64 arrays of equal length. Raises ValueError for a rank above the maximum and
    for a row that is not in X.
    """
    most = RankOffset.shape[1] // 2
    own, others, sources = RankOffset[:, :1], RankOffset[:, 1::2], RankOffset[:, 2::2]
    out_rows, positions = np.nonzero((own > 0) & (others > 0))
    first, second = own[out_rows, 0], others[out_rows, positions]
    chosen = sources[out_rows, positions]
    if max(first.max(initial=0), second.max(initial=0)) > most:
        highest = max(first.max(), second.max())
        raise ValueError(
            f"rank_attention: RankOffset has the rank {highest}, expected at most {most}"
        )
    wrong = (chosen < 0) | (chosen >= rows)
    if wrong.any():
        raise ValueError(
            f"rank_attention: RankOffset refers to row {chosen[wrong][0]} of X, expected 0 to "
            f"{rows - 1}"
        )
    blocks = (first.astype(np.int64) - 1) * most + second - 1
    return out_rows, chosen.astype(np.int64), blocks


class RankAttention(OpDef, op="rank_attention"):
    """Out[i] = the sum over items k shown with item i of X[row of k] @ matrix of both ranks.

    X is [rows, features], RankOffset int32 [rows, 1 + 2 `MaxRank`]: the rank of the item, counted
    from 1, then rank and row of each item shown with it; a rank of 0 means none. RankParam is
    [`MaxRank`² features, columns], a matrix for each pair of ranks. X has no gradient.
    Reference: rank_attention_op.cu.
    """

    no_kernel_reason = "the matrix of each row is data-dependent"

    X = reads(no_grad=True)
    RankOffset = reads(no_grad=True)
    RankParam = reads()
    Out = writes()
    MaxRank = attr(3, Accepted(low=1))

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, RankOffset, RankParam = s.X, s.RankOffset, s.RankParam
        require_same_dtype(self.kind, X=X, RankParam=RankParam)
        require_dtype(self.kind, "X", X, DType.FP32, DType.FP64)
        require_dtype(self.kind, "RankOffset", RankOffset, DType.INT32)
        fits = (X.rank, RankOffset.rank, RankParam.rank) == (2, 2, 2)
        if not fits or (
            differ(RankOffset.shape[0], X.shape[0])
            or differ(RankOffset.shape[1], 1 + 2 * self.MaxRank)
            or differ(RankParam.shape[0], X.shape[1] * self.MaxRank**2)
        ):
            shapes = shown(X=X, RankOffset=RankOffset, RankParam=RankParam)
            expected = f"[rows, {1 + 2 * self.MaxRank}] and [{self.MaxRank**2} · features, columns]"
            raise ShapeError(f"rank_attention: {shapes} do not fit, expected {expected}")
        return X.with_shape((X.shape[0], RankParam.shape[1]))

    def numpy(self, X: Array, RankOffset: Array, RankParam: Array) -> Array:
        out_rows, rows, blocks = rank_blocks(RankOffset, len(X))
        matrices = RankParam.reshape(-1, X.shape[1], RankParam.shape[1])
        out = np.zeros((len(X), RankParam.shape[1]), X.dtype)
        for block in np.unique(blocks).tolist():
            here = blocks == block
            np.add.at(out, out_rows[here], X[rows[here]] @ matrices[block])
        return out

    def grad(self, X: Array, RankOffset: Array, RankParam: Array, d_Out: Array) -> dict[str, Array]:
        out_rows, rows, blocks = rank_blocks(RankOffset, len(X))
        gradient = np.zeros_like(RankParam)
        matrices = gradient.reshape(-1, X.shape[1], gradient.shape[1])
        for block in np.unique(blocks).tolist():
            here = blocks == block
            matrices[block] = X[rows[here]].T @ d_Out[out_rows[here]]
        return {"RankParam": gradient}
