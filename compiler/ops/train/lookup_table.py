"""Embedding lookups, with dense and with sparse gradients."""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.shared_kernels import add_rows, copy, fill, inside
from compiler.ops.train.selected_rows import lower_add_rows, rows_type
from compiler.ops.type_checks import differ, numeric, require_dtype


def expect_rows(ids: Array, count: int, name: str) -> None:
    """Raise ValueError for an id that is not one of the `count` rows of a table.

    Ids, int64, are viewed as unsigned, so that one comparison finds negative ones too.
    """
    if ids.view(np.uint64).max(initial=0) >= count:
        wrong = (ids < 0) | (ids >= count)
        raise ValueError(
            f"id {ids[wrong][0]} at position {int(wrong.argmax())} is not a row of the table "
            f"{name}: expected 0 to {count - 1}"
        )


def look_up(table: Array, ids: Array, out: Array, name: str) -> None:
    """Set out[i] to table[ids[i]]; ValueError if an id is not a row of the table."""
    expect_rows(ids, table.shape[0], name)
    table.take(ids, axis=0, out=out, mode="clip")


def found_rows(table: Array, ids: Array, padding: int) -> Array:
    """Rows of a table by index, shape ids.shape + row.shape; zeros for `padding`."""
    flat = ids.reshape(-1)
    rows = np.empty((flat.size, table.shape[1]), table.dtype)
    look_up(table, flat, rows, "W")
    if padding >= 0:
        rows[flat == padding] = 0.0
    return rows.reshape(*ids.shape, table.shape[1])


class Lookup(OpDef):
    """Out[i] = W[Ids[i]], and 0 where Ids[i] is `padding_idx`, whose row gets no gradient.

    A negative `padding_idx` means none. With `is_sparse`, the gradient of W is sparse: a row of
    Out@GRAD for each id. Reference: lookup_table_op.h, whose sparse gradient also has rows for
    `padding_idx`.
    """

    epilogue = "Out"
    is_cheap = True
    lod_source = "Ids"
    sparse_grads = ("W",)

    W = reads()
    Ids = reads(no_grad=True)
    Out = writes()
    is_sparse = attr(False)
    is_distributed = attr(False)
    padding_idx = attr(-1, WIDE)
    remote_prefetch = attr(False)
    trainer_id = attr(0)
    height_sections = attr_list(int, WIDE)
    epmap = attr_list(str)
    table_names = attr_list(str)

    def looked_up(self, Ids: TensorType) -> Shape:
        """The shape of Ids without the axis that a row replaces."""
        return Ids.shape

    def infer(self, s: Slots[TensorType]) -> TensorType:
        W = s.W
        require_dtype(self.kind, "Ids", s.Ids, DType.INT64)
        if W.rank != 2:
            raise ShapeError(f"{self.kind}: the table W is {W}, expected two axes")
        return W.with_shape((*self.looked_up(s.Ids), W.shape[1]))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        if not self.is_sparse:
            return {"W": s.W}
        count = product(self.looked_up(s.Ids))
        return {"W": s.d_Out.with_shape((count, s.W.shape[1])), "W_rows": rows_type(count)}

    def grad(self, W: Shape, Ids: Array, d_Out: Array) -> dict[str, Array]:
        height, width = numeric(W)
        ids, values = Ids.reshape(-1), d_Out.reshape(-1, width)
        if self.padding_idx >= 0:
            values = values * (ids[:, None] != self.padding_idx)
        if self.is_sparse:
            return {"W": values, "W_rows": ids}
        d_W = np.zeros((height, width), d_Out.dtype)
        np.add.at(d_W, ids, values)
        return {"W": d_W}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        W = s.W
        count = s.Ids.type.numel
        ids, out = s.Ids.view((count,)), s.Out.view((count, W.shape[1]))
        k.line(f"{k.function(look_up)}({W}, {ids}, {out}, {str(W)!r})")
        if self.padding_idx >= 0:
            k.line(f"{out}[{ids} == {self.padding_idx}] = 0.0")

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Ids, d_Out = s.Ids, s.d_Out
        d_W, d_W_rows = s.get("d_W"), s.get("d_W_rows")
        ids, padding = Ids.view((Ids.type.numel,)), self.padding_idx
        if d_W_rows is not None:
            k.line(f"np.copyto({d_W_rows}, {ids})")
        if d_W is None:
            return
        if self.is_sparse:
            k.line(f"np.copyto({d_W}, {d_Out.view(d_W.shape)})")
        else:
            k.line(f"{d_W}.fill(0.0)")
            lower_add_rows(k, d_W, Ids, d_Out)
        if padding >= 0:
            k.line(f"{d_W}[{f'{ids} == {padding}' if self.is_sparse else padding}] = 0.0")

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        W = s.W
        ids = s.Ids.view((s.Ids.type.numel,))
        k.line(f"{k.function(expect_rows)}({ids}, {W.shape[0]}, {str(W)!r})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        W = s.W
        count = s.Ids.type.numel
        n, j = k.grid(count, W.shape[1])
        row = s.Ids.reshaped((count,))[n]
        value = W.at(row, j, where=self.counts(k, row, W), other=0)
        k.store(s.Out.reshaped((count, W.shape[1])), (n, j), value)

    def counts(self, k: KernelBuilder, row: Number, W: DeviceOperand) -> Number:
        """True if a row index is in the table, and is not the padding."""
        in_range = inside(k, row, W.shape[0])
        return in_range & k.not_equal(row, self.padding_idx) if self.padding_idx >= 0 else in_range

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        Ids = s.Ids
        d_W = s.get("d_W")
        if (d_W_rows := s.get("d_W_rows")) is not None:
            copy(k, Ids, d_W_rows)
        if d_W is not None and not self.is_sparse:
            fill(k, d_W, 0)
            add_rows(k, s.d_Out, Ids, d_W, 0, self.padding_idx)
        elif d_W is not None:
            n, j = k.grid(*d_W.shape)
            row, above = Ids.reshaped((d_W.shape[0],))[n], s.d_Out.reshaped(d_W.shape)[n, j]
            not_padding = k.not_equal(row, self.padding_idx) if self.padding_idx >= 0 else None
            k.store(d_W, (n, j), above if not_padding is None else k.where(not_padding, above, 0))


class LookupTable(Lookup, op="lookup_table"):
    """Ids have a last axis of size 1, which Out lacks."""

    grad_inplace = attr(False)

    def looked_up(self, Ids: TensorType) -> Shape:
        """The shape of Ids without the last axis; ShapeError if its size is not 1."""
        if not Ids.shape or differ(Ids.shape[-1], 1):
            raise ShapeError(f"{self.kind}: Ids are {Ids}, expected a last axis of size 1")
        return Ids.shape[:-1]

    def numpy(self, W: Array, Ids: Array) -> Array:
        return found_rows(W, Ids.reshape(Ids.shape[:-1]), self.padding_idx)


class LookupTableV2(Lookup, op="lookup_table_v2"):
    """Ids may have any shape."""

    def numpy(self, W: Array, Ids: Array) -> Array:
        return found_rows(W, Ids, self.padding_idx)
