"""Ops on integer sequences: enumerating windows, erasing tokens, scatter-adding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import (
    OpDef,
    Slots,
    attr,
    attr_list,
    reads,
    reads_lod,
    required,
    writes,
    writes_lod,
)
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.math.matmul import as_matrix
from compiler.ops.sequence.offsets import (
    count_of,
    require_column,
    require_one_level,
    reshaped,
    window_values,
)
from compiler.ops.sequence.sequence_kernels import owner_rows, rows_bounds, table_of
from compiler.ops.shared_kernels import copy, inside
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, shown


class SequenceErase(OpDef, op="sequence_erase"):
    """Out [kept, 1] = X [rows, 1] without the rows whose value is one of `tokens`.

    Outer LoD levels are unchanged. Reference: sequence_erase_op.h.
    """

    lod_source = ""
    no_kernel_reason = "the number of output rows is data-dependent"

    X = reads(no_grad=True)
    X_lod = reads_lod("X")
    Out = writes()
    Out_lod = writes_lod("Out")
    tokens = attr_list(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X = s.X
        require_dtype("sequence_erase", "X", X, DType.INT32, DType.INT64)
        require_column("sequence_erase", X)
        return {"Out": X.with_shape((UNKNOWN, 1)), "Out_lod": s.all("X_lod")}

    def numpy(self, X: Array, X_lod: list[Array]) -> dict[str, object]:
        mask = ~np.isin(X[:, 0], self.tokens)
        innermost = np.append(0, np.cumsum(mask))[X_lod[-1]]
        return {"Out": X[mask], "Out_lod": [*X_lod[:-1], innermost]}


class SequenceEnumerate(OpDef, op="sequence_enumerate"):
    """Out[t] = X[t : t + win_size], padded with `pad_value` after the end of the sequence.

    X is integers [rows, 1] with one LoD level, Out [rows, win_size].
    Reference: sequence_enumerate_op.h.
    """

    X = reads(no_grad=True)
    X_lod = reads_lod("X")
    Out = writes()
    win_size = required(int)
    pad_value = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_one_level("sequence_enumerate", "X", s.all("X_lod"))
        require_dtype("sequence_enumerate", "X", X, DType.INT32, DType.INT64)
        require_column("sequence_enumerate", X)
        if self.win_size < 2:
            raise BadAttribute(f"sequence_enumerate: 'win_size' is {self.win_size}, not above 1")
        return X.with_shape((X.shape[0], self.win_size))

    def numpy(self, X: Array, X_lod: list[Array]) -> Array:
        return window_values(X[:, 0], X_lod[0], 0, self.win_size, self.pad_value)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        rows_in = rows_bounds(k, s.host.all("X_lod")[0], s.X.shape[0])
        i, step = k.grid(*s.Out.shape)
        inside = i + step < rows_in[1, i]
        k.store(s.Out, (i, step), s.X.at(i + step, 0, where=inside, other=self.pad_value))


def scatter_places(ids: Array, offsets: Array, width: int) -> tuple[Array, Array]:
    """The row and column of each update; ValueError if a column is out of range."""
    places = ids.reshape(-1)
    expect_columns(places, width)
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), places


def expect_columns(places: Array, width: int) -> None:
    """Raise ValueError for a column out of range."""
    wrong = (places < 0) | (places >= width)
    if wrong.any():
        raise ValueError(
            f"sequence_scatter: Ids has {places[wrong][0]}, but a row of X has the columns 0 to "
            f"{width - 1}"
        )


class SequenceScatter(OpDef, op="sequence_scatter"):
    """Out = X, with the values of sequence i of Updates added to row i at the indices in Ids.

    X is [count, …], with flattened rows; Ids and Updates are [rows, 1] with one LoD level.
    Reference: sequence_scatter_op.h.
    """

    lod_source = ""

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    Ids = reads(no_grad=True)
    Ids_lod = reads_lod("Ids")
    Updates = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X, Ids, Updates = s.X, s.Ids, s.Updates
        Ids_lod = s.all("Ids_lod")
        require_one_level("sequence_scatter", "Ids", Ids_lod)
        require_dtype("sequence_scatter", "Ids", Ids, DType.INT32, DType.INT64)
        require_same_dtype("sequence_scatter", X=X, Updates=Updates)
        if differ(Ids.numel, Updates.numel) or differ(X.shape[0], count_of(Ids_lod[0])):
            raise ShapeError(
                f"sequence_scatter: {shown(X=X, Ids=Ids, Updates=Updates)} do not go together, "
                f"with {count_of(Ids_lod[0])} sequences in Ids: expected as many rows in X"
            )
        return X

    def numpy(self, X: Array, Ids: Array, Ids_lod: list[Array], Updates: Array) -> Array:
        Out = np.array(X)
        rows = as_matrix(Out, 1)
        np.add.at(rows, scatter_places(Ids, Ids_lod[0], rows.shape[1]), Updates.reshape(-1))
        return Out

    def grad(
        self, Ids: Array, Ids_lod: list[Array], Updates: Shape, d_Out: Array
    ) -> dict[str, Array]:
        rows = as_matrix(d_Out, 1)
        taken = rows[scatter_places(Ids, Ids_lod[0], rows.shape[1])]
        return {"X": d_Out, "Updates": reshaped(taken, Updates)}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Ids = s.X, s.Ids
        k.line(f"{k.function(expect_columns)}({Ids}, {X.shape[1]})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        count, table = s.Ids.type.numel, table_of(s.X)
        owners = owner_rows(k, s.host.all("Ids_lod")[0], count)
        copy(k, s.X, s.Out)
        (i,) = k.grid(count)
        place = s.Ids.reshaped((count,))[i]
        update = s.Updates.reshaped((count,))[i]
        k.add(s.Out.reshaped(table), (owners[i], place), update, inside(k, place, table[1]))

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Out = s.d_Out
        count, table = s.Ids.type.numel, table_of(d_Out)
        if (d_X := s.get("d_X")) is not None:
            copy(k, d_Out, d_X)
        if (d_Updates := s.get("d_Updates")) is not None:
            owners = owner_rows(k, s.host.all("Ids_lod")[0], count)
            (i,) = k.grid(count)
            place = s.Ids.reshaped((count,))[i]
            where = inside(k, place, table[1])
            above = d_Out.reshaped(table).at(owners[i], place, where=where, other=0)
            k.store(d_Updates.reshaped((count,)), (i,), above)
