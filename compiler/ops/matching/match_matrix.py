"""`match_matrix_tensor`: each row of a sequence times each of another. Reference: its op.cc."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.types import Array, TensorType
from compiler.ops.matching.ragged_images import column_like, offsets_by, ragged_sizes, require_pair
from compiler.ops.type_checks import differ, require_same_dtype, shown


class MatchMatrixTensor(OpDef, op="match_matrix_tensor"):
    """Out of pair i is [t, n, m]: X_i @ W[:, t] @ Y_iᵀ, for sequences X_i [n, h] and Y_i [m, h].

    Tmp [rows · t · h, 1] is X @ W. Reference: match_matrix_tensor_op.cc.
    """

    no_kernel_reason = "the number of rows is data-dependent"
    lod_source = ""

    X = reads()
    X_lod = reads_lod("X")
    Y = reads()
    Y_lod = reads_lod("Y")
    W = reads()
    Out = writes()
    Out_lod = writes_lod("Out")
    Tmp = writes()
    dim_t = attr(1, Accepted(low=1))

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X, Y, W = s.X, s.Y, s.W
        X_lod = s.all("X_lod")
        require_pair("match_matrix_tensor", X=X_lod, Y=s.all("Y_lod"))
        require_same_dtype("match_matrix_tensor", X=X, Y=Y, W=W)
        fits = X.rank == Y.rank == 2 and W.rank == 3
        pairs = zip(W.shape, (X.shape[-1], self.dim_t, Y.shape[-1]), strict=False)
        if not fits or any(differ(a, b) for a, b in pairs):
            expected = f"expected W [columns of X, {self.dim_t}, columns of Y]"
            raise ShapeError(f"match_matrix_tensor: {shown(X=X, Y=Y, W=W)} do not fit, {expected}")
        tmp = X.with_shape((X.shape[0] * self.dim_t * W.shape[2], 1))
        return {"Out": column_like(X), "Out_lod": [X_lod[0]], "Tmp": tmp}

    def numpy(
        self, X: Array, X_lod: list[Array], Y: Array, Y_lod: list[Array], W: Array
    ) -> dict[str, object]:
        tall, wide, tmp = X_lod[0], Y_lod[0], np.tensordot(X, W, axes=1)
        result = [np.empty(0, X.dtype)]
        for i in range(len(tall) - 1):
            rows, others = tmp[tall[i] : tall[i + 1]], Y[wide[i] : wide[i + 1]]
            result.append(np.einsum("nth,mh->tnm", rows, others).reshape(-1))
        out = np.concatenate(result).reshape(-1, 1)
        offsets = offsets_by(ragged_sizes(tall, wide), self.dim_t)
        return {"Out": out, "Out_lod": [offsets], "Tmp": tmp.reshape(-1, 1)}

    def grad(
        self,
        X: Array,
        X_lod: list[Array],
        Y: Array,
        Y_lod: list[Array],
        W: Array,
        Tmp: Array,
        d_Out: Array,
    ) -> dict[str, Array]:
        tall, wide = X_lod[0], Y_lod[0]
        tmp, d_Y = Tmp.reshape(len(X), W.shape[1], W.shape[2]), np.zeros_like(Y)
        d_tmp = np.zeros_like(tmp)
        sizes = ragged_sizes(tall, wide)
        offsets = offsets_by(sizes, self.dim_t)
        for i, (n, m) in enumerate(sizes):
            rows, others = slice(tall[i], tall[i + 1]), slice(wide[i], wide[i + 1])
            upstream = d_Out.reshape(-1)[offsets[i] : offsets[i + 1]].reshape(-1, n, m)
            d_tmp[rows] = np.einsum("tnm,mh->nth", upstream, Y[others])
            d_Y[others] = np.einsum("tnm,nth->mh", upstream, tmp[rows])
        d_X = np.tensordot(d_tmp, W, axes=([1, 2], [1, 2]))
        return {"X": d_X, "Y": d_Y, "W": np.tensordot(X, d_tmp, axes=([0], [0]))}
