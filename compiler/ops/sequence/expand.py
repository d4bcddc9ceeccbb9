"""Ops that repeat rows or sequences according to the LoD of another tensor."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Size
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, reads_lod, writes, writes_lod
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.sequence import pool_kernels
from compiler.ops.sequence.offsets import (
    count_of,
    offsets_of,
    require_one_level,
    require_rank,
    run_rows,
    segment_sums,
    zeros,
)
from compiler.ops.sequence.sequence_kernels import owner_rows
from compiler.ops.shared_kernels import add_rows, copy, fill, gather_slices
from compiler.ops.type_checks import differ, require_same_shape, shown
from compiler.support.free_memory import expect_memory


def sequence_offsets(lod: list[Array] | None, count: int) -> Array:
    """The sequence offsets; without a LoD each row is a sequence."""
    return lod[0] if lod else np.arange(count + 1)


def repeated_rows(offsets: Array, times: Array) -> Array:
    """The row indices of sequences, each repeated `times` times."""
    return run_rows(np.repeat(offsets[:-1], times), np.repeat(np.diff(offsets), times))


def expanded_rows(lod: list[Array] | None, level: Array, count: int) -> Array:
    """The row of X for each output row; X has `count` rows."""
    return repeated_rows(sequence_offsets(lod, count), np.diff(level))


def expanded_offsets(offsets: Array, level: Array) -> Array:
    """The offsets of the repeated sequences."""
    return np.append(0, np.cumsum(np.repeat(np.diff(offsets), np.diff(level))))


class SequenceExpand(OpDef, op="sequence_expand"):
    """Out = each sequence of X, repeated once per item of Y's LoD level `ref_level`.

    X is [rows, …] and may have one LoD level, which Out then has too; without it each row is
    repeated. A `ref_level` of -1 is the innermost. Only the LoD of Y is used; a level without
    sequences leaves X unchanged. Reference: sequence_expand_op.h.
    """

    lod_source = ""
    derives_offsets = True
    sets_output_sizes = True

    X = reads()
    X_lod = reads_lod("X", optional=True)
    Y = reads(shape_only=True, no_grad=True)
    Y_lod = reads_lod("Y")
    Out = writes()
    Out_lod = writes_lod("Out")
    ref_level = attr(-1)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X = s.X
        X_lod, Y_lod = s.all("X_lod"), s.all("Y_lod")
        require_rank("sequence_expand", "X", X, 2)
        if X_lod:
            require_one_level("sequence_expand", "X", X_lod)
        if not -1 <= self.ref_level < len(Y_lod):
            raise BadAttribute(
                f"sequence_expand: 'ref_level' is {self.ref_level}, and Y has {len(Y_lod)} levels"
            )
        count = count_of(X_lod[0]) if X_lod else X.shape[0]
        if differ(count, count_of(Y_lod[self.ref_level])):
            raise ShapeError(
                f"sequence_expand: X has {count} sequences, and level {self.ref_level} of Y has "
                f"{count_of(Y_lod[self.ref_level])}, expected as many"
            )
        rows = UNKNOWN if X_lod else self.items_of(s.Y, Y_lod)
        Out_lod = [offsets_of(self.items_of(s.Y, Y_lod))] if X_lod else []
        return {"Out": X.with_shape((rows, *X.shape[1:])), "Out_lod": Out_lod}

    def items_of(self, Y: TensorType, Y_lod: list[TensorType]) -> Size:
        """The number of items of the level: sequences of the next one, or rows of Y."""
        inner = self.ref_level % len(Y_lod) + 1
        return count_of(Y_lod[inner]) if inner < len(Y_lod) else Y.shape[0]

    def numpy(self, X: Array, X_lod: list[Array] | None, Y_lod: list[Array]) -> dict[str, object]:
        level = Y_lod[self.ref_level]
        rows = expanded_rows(X_lod, level, len(X))
        expect_memory((len(rows), *X.shape[1:]), X.itemsize)
        Out = X.take(rows, axis=0)
        return {"Out": Out, "Out_lod": [expanded_offsets(X_lod[0], level)] if X_lod else []}

    def grad(
        self, X: Shape, X_lod: list[Array] | None, Y: Shape, Y_lod: list[Array], d_Out: Array
    ) -> dict[str, Array]:
        d_X = zeros(X, d_Out)
        np.add.at(d_X, expanded_rows(X_lod, Y_lod[self.ref_level], len(d_X)), d_Out)
        return {"X": d_X}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        X_lod, Out_lod = s.host.all("X_lod"), s.host.all("Out_lod")
        level = s.host.all("Y_lod")[self.ref_level]
        rows = k.on_host(expanded_rows, X_lod or None, level, s.X.shape[0])
        k.set_size(Out.shape[0], rows.length())
        gather_slices(k, s.X, k.to_device(rows, Out.shape[:1]), Out, 0)
        if X_lod and Out_lod:
            k.write_host(Out_lod[0], k.on_host(expanded_offsets, X_lod[0], level))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Out, d_X = s.d_Out, s.d_X
        X_lod = s.host.all("X_lod")
        level = s.host.all("Y_lod")[self.ref_level]
        if not X_lod:
            pool_kernels.pooled(k, d_Out, level, "SUM", 0.0, d_X, None)
            return
        rows = k.on_host(expanded_rows, X_lod, level, d_X.shape[0])
        fill(k, d_X, 0.0)
        add_rows(k, d_Out, k.to_device(rows, d_Out.shape[:1]), d_X)


class SequenceExpandAs(OpDef, op="sequence_expand_as"):
    """Out = row i of X, repeated len(sequence i of Y) times; Out has Y's LoD.

    Only the LoD of Y is used, which has one level. Reference: sequence_expand_as_op.h.
    """

    lod_source = "Y"

    X = reads()
    Y = reads(shape_only=True, no_grad=True)
    Y_lod = reads_lod("Y")
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        Y_lod = s.all("Y_lod")
        require_rank("sequence_expand_as", "X", X, 2)
        require_one_level("sequence_expand_as", "Y", Y_lod)
        if differ(X.shape[0], count_of(Y_lod[0])):
            raise ShapeError(
                f"sequence_expand_as: {shown(X=X)} has {X.shape[0]} rows, and Y "
                f"{count_of(Y_lod[0])} sequences, expected as many"
            )
        return X.with_shape((s.Y.shape[0], *X.shape[1:]))

    def numpy(self, X: Array, Y_lod: list[Array]) -> Array:
        return np.repeat(X, np.diff(Y_lod[0]), axis=0)

    def grad(self, X: Shape, Y: Shape, Y_lod: list[Array], d_Out: Array) -> dict[str, Array]:
        return {"X": segment_sums(d_Out, Y_lod[0])}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        gather_slices(k, s.X, owner_rows(k, s.host.all("Y_lod")[0], s.Out.shape[0]), s.Out, 0)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        pool_kernels.pooled(k, s.d_Out, s.host.all("Y_lod")[0], "SUM", 0.0, s.d_X, None)


def require_offsets(offsets: Array, rows: int) -> Array:
    """Convert offsets of a LoD level to int64; ValueError unless they are valid for `rows` rows."""
    wrong = len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != rows
    if wrong or (np.diff(offsets) < 0).any():
        raise ValueError(
            f"lod_reset: {offsets.tolist()} are not the offsets of sequences in {rows} rows: "
            "expected numbers that ascend from 0 to that count"
        )
    return offsets.astype(np.int64)


def new_levels(
    X_lod: list[Array] | None,
    Y: Array | None,
    Y_lod: list[Array] | None,
    target: list[int],
    append: bool,
    rows: int,
) -> list[Array]:
    """The LoD that `lod_reset` assigns to a tensor of `rows` rows."""
    if Y_lod:
        require_offsets(Y_lod[-1], rows)
        return Y_lod
    offsets = np.array(target) if Y is None else Y.reshape(-1)
    return [*(X_lod or [] if append else []), require_offsets(offsets, rows)]


class LodReset(OpDef, op="lod_reset"):
    """Out = X with another LoD: that of Y, or one level of offsets from Y's values (int32).

    Without Y the offsets are `target_lod`. With `append`, offsets become a new innermost level;
    but if Y has a LoD itself, it still replaces the LoD of X entirely.
    Reference: lod_reset_op.h.
    """

    lod_source = ""

    X = reads()
    X_lod = reads_lod("X", optional=True, may_end_early=True)
    Y = reads(optional=True, no_grad=True, on_host=True)
    Y_lod = reads_lod("Y", optional=True)
    Out = writes(inplace="X")
    Out_lod = writes_lod("Out")
    target_lod = attr_list(int)
    append = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        Y, Y_lod = s.get("Y"), s.all("Y_lod")
        if Y_lod:
            return {"Out": s.X, "Out_lod": Y_lod}
        if Y is None and len(self.target_lod) < 2:
            raise BadAttribute(f"lod_reset: 'target_lod' is {self.target_lod}, expected offsets")
        count = len(self.target_lod) if Y is None else Y.numel
        outer = s.all("X_lod") if self.append else []
        return {"Out": s.X, "Out_lod": [*outer, offsets_of(count - 1)]}

    def numpy(
        self,
        X: Array,
        X_lod: list[Array] | None,
        Y: Array | None,
        Y_lod: list[Array] | None,
    ) -> dict[str, object]:
        return {
            "Out": X,
            "Out_lod": new_levels(X_lod, Y, Y_lod, self.target_lod, self.append, len(X)),
        }

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        require_same_shape("lod_reset_grad", **{"X": s.X, "Out@GRAD": s.d_Out})
        return {"X": s.X}

    def grad(self, X: Shape, d_Out: Array) -> dict[str, Array]:
        return {"X": d_Out}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Y_lod = s.host.all("Y_lod")
        arguments = (
            s.host.all("X_lod") or None,
            None if Y_lod else s.host.get("Y"),
            Y_lod or None,
            self.target_lod,
            self.append,
            s.X.shape[0],
        )
        levels = k.on_host(new_levels, *arguments)
        for index, level in enumerate(s.host.all("Out_lod")):
            k.write_host(level, levels[index])
        copy(k, s.X, s.Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        copy(k, s.d_Out, s.d_X)
