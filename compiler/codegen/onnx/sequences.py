"""Sequences of several lengths (LoD): rows of all sequences, and the offsets where they begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.codegen.onnx.converters import converts
from compiler.codegen.onnx.nodes import Nodes, Unsupported
from compiler.ir.dims import Size
from compiler.ir.graph import Op, Var
from compiler.ir.types import DType
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass

LARGEST = np.iinfo(np.int64).max


@dataclass
class SequenceRows:
    """The rows of sequences: computes indices from their offsets [N + 1], each when first asked."""

    nodes: Nodes
    offsets: str
    steps: int = 0
    """The steps that each sequence is padded to; 0 for those of the longest."""

    @staticmethod
    def of(nodes: Nodes, op: Op, slot: str, steps: int = 0) -> SequenceRows:
        """Those of the last level of an input. Raises Unsupported for an input without LoD."""
        levels = op.inputs.get(f"{slot}_lod")
        if not levels:
            raise Unsupported(f"its input {slot} has no LoD")
        return SequenceRows(nodes, nodes.name(levels[-1]), steps)

    @cached_property
    def starts(self) -> str:
        """The first row of each sequence [N]."""
        return part(self.nodes, self.offsets, 0, -1)

    @cached_property
    def ends(self) -> str:
        """The row after the last of each sequence [N]."""
        return part(self.nodes, self.offsets, 1, LARGEST)

    @cached_property
    def lengths(self) -> str:
        """The number of rows of each sequence [N]."""
        return self.nodes.add("Sub", [self.ends, self.starts])

    @cached_property
    def count(self) -> str:
        """The number of rows, a scalar."""
        return self._at(self.offsets, -1)

    @cached_property
    def longest(self) -> str:
        """The steps that sequences are padded to, a scalar."""
        if self.steps:
            return self.nodes.scalar(self.steps, DType.INT64)
        return self.nodes.add("ReduceMax", [self.lengths], keepdims=0)

    @cached_property
    def numbers(self) -> str:
        """The number of each row [rows]."""
        return counted(self.nodes, self.count)

    @cached_property
    def sequence(self) -> str:
        """The sequence that each row belongs to [rows]."""
        nodes = self.nodes
        behind = nodes.add("GreaterOrEqual", [column(nodes, self.numbers), self.ends])
        ones = nodes.cast(behind, DType.INT64)
        return nodes.add("ReduceSum", [ones, nodes.constant([1])], keepdims=0)

    @cached_property
    def places(self) -> str:
        """The row of each step of each sequence [N, longest]; some row where it is over."""
        nodes = self.nodes
        steps = counted(nodes, self.longest)
        rows = nodes.add("Add", [column(nodes, self.starts), steps])
        last = nodes.add("Sub", [self.count, nodes.scalar(1, DType.INT64)])
        return nodes.add("Min", [rows, last])

    @cached_property
    def is_step(self) -> str:
        """Whether each sequence has a step [N, longest]."""
        steps = counted(self.nodes, self.longest)
        return self.nodes.add("Less", [steps, column(self.nodes, self.lengths)])

    @cached_property
    def places_of_rows(self) -> str:
        """The place of each row in [N · longest], as which padded values are flat."""
        nodes = self.nodes
        start = nodes.add("Gather", [self.starts, self.sequence])
        step = nodes.add("Sub", [self.numbers, start])
        return nodes.add("Add", [nodes.add("Mul", [self.sequence, self.longest]), step])

    def padded(self, name: str, rank: int, dtype: DType, fill: float) -> str:
        """The rows of a value as [N, longest, …], filled where a sequence is over."""
        nodes = self.nodes
        rows = nodes.add("Gather", [name, self.places])
        axes = nodes.constant([*range(2, rank + 1)])
        mask = nodes.add("Unsqueeze", [self.is_step, axes]) if rank > 1 else self.is_step
        return nodes.add("Where", [mask, rows, nodes.scalar(fill, dtype)])

    def unpadded(self, padded: str, sizes: list[int], out: str) -> None:
        """Write the rows of a value [N, longest, …], whose other `sizes` are known."""
        flat = self.nodes.add("Reshape", [padded, self.nodes.constant([-1, *sizes])])
        self.nodes.add("Gather", [flat, self.places_of_rows], out)

    def _at(self, name: str, index: int) -> str:
        return self.nodes.add("Gather", [name, self.nodes.scalar(index, DType.INT64)])


def part(nodes: Nodes, name: str, start: int, end: int) -> str:
    """Some entries of a value along its first axis."""
    return nodes.add("Slice", [name, *(nodes.constant([each]) for each in (start, end, 0))])


def counted(nodes: Nodes, count: str) -> str:
    """The numbers from 0 below a scalar."""
    zero, one = nodes.scalar(0, DType.INT64), nodes.scalar(1, DType.INT64)
    return nodes.add("Range", [zero, count, one])


def column(nodes: Nodes, name: str) -> str:
    """A value [n] as [n, 1]."""
    return nodes.add("Unsqueeze", [name, nodes.constant([1])])


def fixed_sizes(var: Var) -> list[int]:
    """The sizes of a value after the first axis. Raises Unsupported if one is symbolic."""
    sizes = var.type.shape[1:]
    if not all(isinstance(size, int) for size in sizes):
        raise Unsupported(f"rows of an open size {sizes}")
    return [int(str(size)) for size in sizes]


# ---- what kernels ask the host for ---------------------------------------------------------------


def owners(nodes: Nodes, offsets: str) -> str:
    """The sequence of each row [rows]."""
    return SequenceRows(nodes, offsets).sequence


def row_bounds(nodes: Nodes, offsets: str) -> str:
    """Where the sequence of each row begins and ends [2, rows]."""
    rows = SequenceRows(nodes, offsets)
    both = nodes.add("Unsqueeze", [rows.starts, nodes.constant([0])])
    ends = nodes.add("Unsqueeze", [rows.ends, nodes.constant([0])])
    bounds = nodes.add("Concat", [both, ends], axis=0)
    return nodes.add("Gather", [bounds, rows.sequence], axis=1)


def offsets_after(nodes: Nodes, lengths: str) -> str:
    """The offsets of sequences of these lengths [N + 1]."""
    flat = nodes.add("Reshape", [nodes.cast(lengths, DType.INT64), nodes.constant([-1])])
    ends = nodes.add("CumSum", [flat, nodes.constant(np.array(0))])
    return nodes.add("Concat", [nodes.constant([0]), ends], axis=0)


def even_offsets(nodes: Nodes, count: Size, length: Size) -> str:
    """The offsets of `count` sequences of one length."""
    ends = counted(nodes, nodes.add("Squeeze", [nodes.size(count + 1)]))
    return nodes.add("Mul", [ends, nodes.size(length)])


def one_row_offsets(nodes: Nodes, rows: Size) -> str:
    """The offsets of sequences of one row."""
    return even_offsets(nodes, rows, 1)


def reshaped_offsets(nodes: Nodes, offsets: str, size: Size, new_size: Size) -> str:
    """The offsets after rows of a size became rows of another."""
    numbers = nodes.add("Mul", [offsets, nodes.size(size)])
    return nodes.add("Div", [numbers, nodes.size(new_size)])


def constant_array(nodes: Nodes, numbers: Sequence[float], dtype: str) -> str:
    """Constants."""
    return nodes.constant(np.array(numbers, dtype))


HOST_FUNCTIONS: dict[str, Callable[..., str]] = {
    "owners": owners, "row_bounds": row_bounds, "offsets_after": offsets_after,
    "offsets_of_counts": offsets_after, "even_offsets": even_offsets,
    "one_row_offsets": one_row_offsets, "reshaped_offsets": reshaped_offsets,
    "constant_array": constant_array,
}  # fmt: skip
"""By the names of NumPy functions that kernels call on the host: writers of the same numbers."""

# ---- ops -----------------------------------------------------------------------------------------


@converts("sequence_pool")
def sequence_pool(nodes: Nodes, op: Op) -> None:
    """One row for each sequence; `pad_value` for an empty one."""
    defn: Any = op.defn
    x, out, kind = op["X"], nodes.output(op, "Out"), str(defn.pooltype).upper()
    for outer, inner in zip(op.outputs.get("Out_lod", []), op.inputs["X_lod"], strict=False):
        nodes.add("Identity", [nodes.name(inner)], nodes.bind(outer))
    rows = SequenceRows.of(nodes, op, "X")
    name, dtype, rank = nodes.name(x), x.type.dtype, len(x.type.shape)
    one = nodes.scalar(1, DType.INT64)
    if kind in ("FIRST", "LAST"):
        last = nodes.add("Sub", [rows.ends, one])
        place = rows.starts if kind == "FIRST" else nodes.add("Max", [last, rows.starts])
        limit = nodes.add("Sub", [rows.count, one])
        pooled = nodes.add("Gather", [name, nodes.add("Min", [place, limit])])
    elif kind == "MAX":
        padded = rows.padded(name, rank, dtype, -np.inf)
        pooled = nodes.add("ReduceMax", [padded], axes=[1], keepdims=0)
    else:
        padded = rows.padded(name, rank, dtype, 0)
        pooled = nodes.add("ReduceSum", [padded, nodes.constant([1])], keepdims=0)
        if kind != "SUM":
            shape = nodes.constant([-1, *[1] * (rank - 1)])
            length = nodes.cast(nodes.add("Max", [rows.lengths, one]), dtype)
            length = nodes.add("Sqrt", [length]) if kind == "SQRT" else length
            pooled = nodes.add("Div", [pooled, nodes.add("Reshape", [length, shape])])
    is_empty = nodes.add("Equal", [rows.lengths, nodes.constant([0])])
    is_empty = nodes.add("Reshape", [is_empty, nodes.constant([-1, *[1] * (rank - 1)])])
    nodes.add("Where", [is_empty, nodes.scalar(float(defn.pad_value), dtype), pooled], out)


@converts("sequence_slice")
def sequence_slice(nodes: Nodes, op: Op) -> None:
    """The rows between two places of each sequence."""
    rows = SequenceRows.of(nodes, op, "X")
    line = nodes.constant([-1])
    first, lengths = (
        nodes.cast(nodes.add("Reshape", [nodes.input(op, slot), line]), DType.INT64)
        for slot in ("Offset", "Length")
    )
    offsets = offsets_after(nodes, lengths)
    result = SequenceRows(nodes, offsets)
    shift = nodes.add("Sub", [nodes.add("Add", [rows.starts, first]), result.starts])
    places = nodes.add("Add", [nodes.add("Gather", [shift, result.sequence]), result.numbers])
    nodes.add("Gather", [nodes.input(op, "X"), places], nodes.output(op, "Out"))
    nodes.add("Identity", [offsets], nodes.bind(op.outputs["Out_lod"][0]))


@converts("sequence_conv")
def sequence_conv(nodes: Nodes, op: Op) -> None:
    """The rows around each one, zeros beyond its sequence, times the filter."""
    defn: Any = op.defn
    if defn.paddingTrainable:
        raise Unsupported("sequence_conv with trainable padding")
    x, rows = op["X"], SequenceRows.of(nodes, op, "X")
    name, dtype = nodes.name(x), x.type.dtype
    start = nodes.add("Gather", [rows.starts, rows.sequence])
    end = nodes.add("Gather", [rows.ends, rows.sequence])
    last = nodes.add("Sub", [rows.count, nodes.scalar(1, DType.INT64)])
    zero = nodes.scalar(0, DType.INT64)
    columns: list[str] = []
    for step in range(int(defn.contextLength)):
        shift = nodes.scalar(int(defn.contextStart) + step, DType.INT64)
        place = nodes.add("Add", [rows.numbers, shift])
        inside = nodes.add("And", [
            nodes.add("GreaterOrEqual", [place, start]), nodes.add("Less", [place, end]),
        ])  # fmt: skip
        clamped = nodes.add("Max", [nodes.add("Min", [place, last]), zero])
        values = nodes.add("Gather", [name, clamped])
        mask = column(nodes, inside)
        columns.append(nodes.add("Where", [mask, values, nodes.scalar(0, dtype)]))
    around = nodes.add("Concat", columns, axis=1)
    nodes.add("MatMul", [around, nodes.input(op, "Filter")], nodes.output(op, "Out"))


@converts("sequence_softmax")
def sequence_softmax(nodes: Nodes, op: Op) -> None:
    """Over the rows of each sequence."""
    x, rows = op["X"], SequenceRows.of(nodes, op, "X")
    rank, dtype = len(x.type.shape), x.type.dtype
    padded = rows.padded(nodes.name(x), rank, dtype, -np.inf)
    shares = nodes.add("Softmax", [padded], axis=1)
    rows.unpadded(shares, fixed_sizes(x), nodes.output(op, "Out"))


@converts("sequence_expand_as")
def sequence_expand_as(nodes: Nodes, op: Op) -> None:
    """Each row of X as often as the sequence of Y has rows."""
    rows = SequenceRows.of(nodes, op, "Y")
    nodes.add("Gather", [nodes.input(op, "X"), rows.sequence], nodes.output(op, "Out"))


@converts("sequence_expand")
def sequence_expand(nodes: Nodes, op: Op) -> None:
    """Each sequence of X, or each row, as often as an entry of Y's level has items."""
    defn: Any = op.defn
    levels = op.inputs.get("Y_lod")
    if not levels:
        raise Unsupported("its input Y has no LoD")
    place = SequenceRows(nodes, nodes.name(levels[int(defn.ref_level)])).sequence
    if op.inputs.get("X_lod"):
        before = SequenceRows.of(nodes, op, "X")
        lengths = nodes.add("Gather", [before.lengths, place])
        after = SequenceRows(nodes, offsets_after(nodes, lengths))
        shift = nodes.add("Sub", [nodes.add("Gather", [before.starts, place]), after.starts])
        for var in op.outputs.get("Out_lod", []):
            nodes.add("Identity", [after.offsets], nodes.bind(var))
        own = nodes.add("Gather", [shift, after.sequence])
        place = nodes.add("Add", [after.numbers, own])
    nodes.add("Gather", [nodes.input(op, "X"), place], nodes.output(op, "Out"))


@converts("sequence_reverse")
def sequence_reverse(nodes: Nodes, op: Op) -> None:
    """The rows of each sequence from the last to the first."""
    rows = SequenceRows.of(nodes, op, "X")
    ends = nodes.add("Add", [rows.starts, rows.ends])
    both = nodes.add("Gather", [ends, rows.sequence])
    mirrored = nodes.add("Sub", [both, rows.numbers])
    place = nodes.add("Sub", [mirrored, nodes.scalar(1, DType.INT64)])
    nodes.add("Gather", [nodes.input(op, "X"), place], nodes.output(op, "Y"))


@converts("sequence_pad")
def sequence_pad(nodes: Nodes, op: Op) -> None:
    """Rows as [N, steps, …], and the lengths."""
    defn: Any = op.defn
    x, rows = op["X"], SequenceRows.of(nodes, op, "X", max(int(defn.padded_length), 0))
    values = nodes.add("Gather", [nodes.name(x), rows.places])
    rank = len(x.type.shape)
    mask = rows.is_step
    if rank > 1:
        mask = nodes.add("Unsqueeze", [mask, nodes.constant([*range(2, rank + 1)])])
    fill = nodes.input(op, "PadValue")
    result = nodes.add("Where", [mask, values, fill])
    nodes.add("Identity", [result], nodes.output(op, "Out"))
    nodes.add("Identity", [rows.lengths], nodes.output(op, "Length"))


@converts("sequence_unpad")
def sequence_unpad(nodes: Nodes, op: Op) -> None:
    """The first rows of each padded sequence, as many as its length."""
    x = op["X"]
    lengths = nodes.cast(nodes.input(op, "Length"), DType.INT64)
    lengths = nodes.add("Reshape", [lengths, nodes.constant([-1])])
    width = nodes.add("Reshape", [nodes.size(x.type.shape[1]), nodes.constant(np.zeros(0, int))])
    steps = counted(nodes, width)
    is_step = nodes.add("Less", [steps, column(nodes, lengths)])
    places = nodes.add("Transpose", [nodes.add("NonZero", [is_step])], perm=[1, 0])
    rows = nodes.add("GatherND", [nodes.name(x), places])
    target = nodes.target(op["Out"].type.shape)
    nodes.add("Reshape", [rows, target], nodes.output(op, "Out"))
    for var in op.outputs.get("Out_lod", []):
        nodes.add("Identity", [offsets_after(nodes, lengths)], nodes.bind(var))


@converts("sequence_concat")
def sequence_concat(nodes: Nodes, op: Op) -> None:
    """The sequences of several inputs one behind the other: rows sorted by sequence, then input."""
    inputs, levels = op.inputs["X"], op.inputs.get("X_lod", [])
    if len(levels) != len(inputs):
        raise Unsupported("sequence_concat of inputs without LoD, or with several levels")
    every = [SequenceRows(nodes, nodes.name(level)) for level in levels]
    joined = nodes.add("Concat", [nodes.name(var) for var in inputs], axis=0)
    count = nodes.add("Shape", [joined], start=0, end=1)
    keys: list[str] = []
    for index, rows in enumerate(every):
        key = nodes.add("Mul", [rows.sequence, nodes.constant([len(every)])])
        key = nodes.add("Add", [key, nodes.constant([index])])
        keys.append(nodes.add("Add", [nodes.add("Mul", [key, count]), rows.numbers]))
    names = [nodes.temporary("keys"), nodes.temporary("order")]
    both = nodes.add("Concat", keys, axis=0)
    nodes.add_all("TopK", [both, count], names, axis=0, largest=0, sorted=1)
    nodes.add("Gather", [joined, names[1]], nodes.output(op, "Out"))
    for var in op.outputs.get("Out_lod", []):
        total = every[0].offsets
        for rows in every[1:]:
            total = nodes.add("Add", [total, rows.offsets])
        nodes.add("Identity", [total], nodes.bind(var))


@converts("sequence_mask")
def sequence_mask(nodes: Nodes, op: Op) -> None:
    """Whether each step is one of a sequence of that length."""
    x, out = op["X"], op["Y"]
    if op.inputs.get("MaxLenTensor"):
        raise Unsupported("sequence_mask whose length is a tensor")
    defn: Any = op.defn
    lengths = nodes.cast(nodes.name(x), DType.INT64)
    width = nodes.scalar(int(defn.maxlen), DType.INT64)
    if int(defn.maxlen) < 0:
        width = nodes.add("ReduceMax", [lengths], keepdims=0)
    steps = counted(nodes, width)
    behind = nodes.add("Unsqueeze", [lengths, nodes.constant([-1])])
    nodes.cast(nodes.add("Less", [steps, behind]), out.type.dtype, nodes.output(op, "Y"))


@converts("lod_reset")
def lod_reset(nodes: Nodes, op: Op) -> None:
    """The same rows with other offsets."""
    defn: Any = op.defn
    nodes.add("Identity", [nodes.input(op, "X")], nodes.output(op, "Out"))
    levels = [nodes.name(var) for var in op.inputs.get("Y_lod", [])]
    if not levels:
        outer = op.inputs.get("X_lod", []) if defn.append else []
        new = nodes.constant([*defn.target_lod])
        if op.inputs.get("Y"):
            new = nodes.cast(nodes.input(op, "Y"), DType.INT64)
        levels = [*(nodes.name(var) for var in outer), new]
    for var, level in zip(op.outputs.get("Out_lod", []), levels, strict=True):
        nodes.add("Identity", [level], nodes.bind(var))
