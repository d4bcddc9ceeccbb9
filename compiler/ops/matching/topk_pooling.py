"""`sequence_topk_avg_pooling`: means of the k largest numbers of rows."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slots, reads, reads_lod, required, required_list, writes
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.matching.ragged_images import (
    offsets_by,
    ragged_sizes,
    require_column,
    require_pair,
)

AT_LEAST_1 = Accepted(low=1)


class SequenceTopkAvgPooling(OpDef, op="sequence_topk_avg_pooling"):
    """Out [rows, channels · counts]: mean of the k largest numbers per row and channel.

    The sum of the k largest numbers, or of all if there are fewer, divided by k, for each k of
    `topks`. Images are [channel_num, rows of ROW, rows of COLUMN], consecutive in X [n, 1]; `pos`
    has the indices of the largest, -1 if there are fewer.
    Reference: sequence_topk_avg_pooling_op.h.
    """

    no_kernel_reason = "images have data-dependent sizes"
    lod_source = "ROW"

    X = reads()
    X_lod = reads_lod("X")
    ROW = reads(shape_only=True, no_grad=True)
    ROW_lod = reads_lod("ROW")
    COLUMN = reads(shape_only=True, no_grad=True)
    COLUMN_lod = reads_lod("COLUMN")
    Out = writes()
    pos = writes()
    topks = required_list(int, AT_LEAST_1)
    channel_num = required(int, AT_LEAST_1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        kind = "sequence_topk_avg_pooling"
        require_pair(kind, X=s.all("X_lod"), ROW=s.all("ROW_lod"), COLUMN=s.all("COLUMN_lod"))
        require_column(kind, s.X)
        if not self.topks:
            raise BadAttribute(f"{kind}: attribute 'topks' is empty, expected at least one number")
        out = s.X.with_shape((s.ROW.shape[0], self.channel_num * len(self.topks)))
        return {"Out": out, "pos": TensorType(DType.INT32, (UNKNOWN,))}

    def numpy(self, X: Array, ROW_lod: list[Array], COLUMN_lod: list[Array]) -> dict[str, Array]:
        sizes, most = ragged_sizes(ROW_lod[0], COLUMN_lod[0]), max(self.topks)
        offsets = offsets_by(sizes, self.channel_num)
        width = self.channel_num * len(self.topks)
        result = [np.empty((0, width), X.dtype)]
        positions = [np.empty(0, np.int32)]
        for i, (n, m) in enumerate(sizes):
            image = X.reshape(-1)[offsets[i] : offsets[i + 1]].reshape(self.channel_num, n, m)
            order = np.argsort(-image, axis=2, kind="stable")[..., :most]
            sums = np.cumsum(np.take_along_axis(image, order, axis=2), axis=2)
            means = [sums[..., min(k, m) - 1] / k if m else sums.sum(axis=2) for k in self.topks]
            result.append(np.stack(means, axis=2).transpose(1, 0, 2).reshape(n, width))
            filled = np.full((n, self.channel_num, most), -1, np.int32)
            filled[..., : order.shape[2]] = order.transpose(1, 0, 2)
            positions.append(filled.reshape(-1))
        return {"Out": np.concatenate(result).astype(X.dtype), "pos": np.concatenate(positions)}

    def grad(
        self,
        X: Array,
        ROW: Shape,
        ROW_lod: list[Array],
        COLUMN: Shape,
        COLUMN_lod: list[Array],
        pos: Array,
        d_Out: Array,
    ) -> dict[str, Array]:
        sizes, most = ragged_sizes(ROW_lod[0], COLUMN_lod[0]), max(self.topks)
        offsets, tall = offsets_by(sizes, self.channel_num), ROW_lod[0]
        d_X, positions = np.zeros_like(X).reshape(-1), pos.reshape(-1, self.channel_num, most)
        upstream = d_Out.reshape(-1, self.channel_num, len(self.topks))
        widest = max((m for _, m in sizes), default=0)
        below = np.arange(min(most, widest))[:, None] < np.array(self.topks)
        shares = (upstream @ (below / np.array(self.topks)).T).astype(X.dtype)
        for i, (n, m) in enumerate(sizes):
            image = d_X[offsets[i] : offsets[i + 1]].reshape(self.channel_num, n, m)
            rows = slice(int(tall[i]), int(tall[i + 1]))
            order, values = positions[rows][..., :m], shares[rows][..., :m]
            np.put_along_axis(image, order.transpose(1, 0, 2), values.transpose(1, 0, 2), axis=2)
        return {"X": d_X.reshape(X.shape)}
