"""`var_conv_2d`: a convolution of images of different sizes. Reference: its op.cc."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.matching.ragged_images import (
    column_like,
    offsets_by,
    ragged_sizes,
    require_column,
    require_pair,
)
from compiler.ops.type_checks import differ, require_same_dtype

AT_LEAST_1 = Accepted(low=1)


def counts_after(sizes: list[tuple[int, int]], strides: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the sizes of images after a convolution; empty images are 0 x 0."""
    down, across = strides
    result = [((h - 1) // down + 1, (w - 1) // across + 1) for h, w in sizes]
    pairs = zip(sizes, result, strict=True)
    return [after if h and w else (0, 0) for (h, w), after in pairs]


def window_positions(
    size: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int]
) -> tuple[Array, Array]:
    """Return rows and columns [kernel, positions] that window elements cover; centres start at 0.

    Positions outside the image are negative or too large.
    """
    (h, w), (kh, kw), (down, across) = size, kernel, strides
    rows = np.arange(0, h, down)[None, :] - kh // 2 + np.arange(kh)[:, None]
    columns = np.arange(0, w, across)[None, :] - kw // 2 + np.arange(kw)[:, None]
    shape = kh, kw, rows.shape[1], columns.shape[1]
    down_all = np.broadcast_to(rows[:, None, :, None], shape)
    across_all = np.broadcast_to(columns[None, :, None, :], shape)
    return down_all.reshape(kh * kw, -1), across_all.reshape(kh * kw, -1)


class VarConv2d(OpDef, op="var_conv_2d"):
    """Out of image i is [OutputChannel, …]: the convolution by W, padded with zeros.

    W is [OutputChannel, InputChannel · KernelH · KernelW]; windows are centred at every StrideH-th
    row and StrideW-th column. Images are [InputChannel, rows of ROW, rows of COLUMN], consecutive
    in X [n, 1]; Col [m, 1] has the windows [InputChannel · KernelH · KernelW, positions] of each.
    Reference: var_conv_2d_op.cc.
    """

    no_kernel_reason = "the number of rows is data-dependent"
    lod_source = ""

    X = reads()
    X_lod = reads_lod("X")
    ROW = reads(shape_only=True, no_grad=True)
    ROW_lod = reads_lod("ROW")
    COLUMN = reads(shape_only=True, no_grad=True)
    COLUMN_lod = reads_lod("COLUMN")
    W = reads()
    Out = writes()
    Out_lod = writes_lod("Out")
    Col = writes()
    Col_lod = writes_lod("Col")
    InputChannel = attr(1, AT_LEAST_1)
    OutputChannel = attr(1, AT_LEAST_1)
    StrideH = attr(1, AT_LEAST_1)
    StrideW = attr(1, AT_LEAST_1)
    KernelH = attr(1, AT_LEAST_1)
    KernelW = attr(1, AT_LEAST_1)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X, W = s.X, s.W
        X_lod = s.all("X_lod")
        require_pair("var_conv_2d", X=X_lod, ROW=s.all("ROW_lod"), COLUMN=s.all("COLUMN_lod"))
        require_column("var_conv_2d", X)
        require_same_dtype("var_conv_2d", X=X, W=W)
        expected = self.OutputChannel, self.InputChannel * self.KernelH * self.KernelW
        if W.rank != 2 or any(differ(a, b) for a, b in zip(W.shape, expected, strict=False)):
            raise ShapeError(f"var_conv_2d: W is {W}, expected [{expected[0]}, {expected[1]}]")
        column, level = column_like(X), [X_lod[0]]
        return {"Out": column, "Out_lod": level, "Col": column, "Col_lod": level}

    def numpy(
        self, X: Array, ROW_lod: list[Array], COLUMN_lod: list[Array], W: Array
    ) -> dict[str, object]:
        kernel, strides = (self.KernelH, self.KernelW), (self.StrideH, self.StrideW)
        sizes = ragged_sizes(ROW_lod[0], COLUMN_lod[0])
        offsets, after = offsets_by(sizes, self.InputChannel), counts_after(sizes, strides)
        result, columns_of_windows = [np.empty(0, X.dtype)], [np.empty(0, X.dtype)]
        for i, (h, w) in enumerate(sizes):
            image = X.reshape(-1)[offsets[i] : offsets[i + 1]].reshape(-1, h, w)
            rows, columns = window_positions((h, w), kernel, strides)
            inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
            windows = np.zeros((len(image), *rows.shape), X.dtype)
            windows[:, inside] = image[:, rows[inside], columns[inside]]
            columns_of_windows.append(windows.reshape(-1))
            result.append((W @ windows.reshape(W.shape[1], -1)).reshape(-1))
        return {
            "Out": np.concatenate(result).reshape(-1, 1),
            "Out_lod": [offsets_by(after, self.OutputChannel)],
            "Col": np.concatenate(columns_of_windows).reshape(-1, 1),
            "Col_lod": [offsets_by(after, W.shape[1])],
        }

    def grad(
        self,
        X: Array,
        ROW: Shape,
        ROW_lod: list[Array],
        COLUMN: Shape,
        COLUMN_lod: list[Array],
        W: Array,
        Col: Array,
        d_Out: Array,
    ) -> dict[str, Array]:
        kernel, strides = (self.KernelH, self.KernelW), (self.StrideH, self.StrideW)
        sizes = ragged_sizes(ROW_lod[0], COLUMN_lod[0])
        offsets, after = offsets_by(sizes, self.InputChannel), counts_after(sizes, strides)
        ends, col_ends = offsets_by(after, self.OutputChannel), offsets_by(after, W.shape[1])
        d_X, d_W = np.zeros_like(X).reshape(-1), np.zeros_like(W)
        for i, (h, w) in enumerate(sizes):
            upstream = d_Out.reshape(-1)[ends[i] : ends[i + 1]].reshape(len(W), -1)
            windows = Col.reshape(-1)[col_ends[i] : col_ends[i + 1]].reshape(W.shape[1], -1)
            d_W += upstream @ windows.T
            rows, columns = window_positions((h, w), kernel, strides)
            inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
            image = d_X[offsets[i] : offsets[i + 1]].reshape(-1, h, w)
            spread = (W.T @ upstream).reshape(len(image), *rows.shape)
            for plane, values in zip(image, spread, strict=True):
                np.add.at(plane, (rows[inside], columns[inside]), values[inside])
        return {"X": d_X.reshape(X.shape), "W": d_W}
