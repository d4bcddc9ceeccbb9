"""Liveness: the interval from the kernel that writes a var to the last one that reads it.

A step is a kernel: a single op, or the ops of one fusion group. Intervals are half-open; returning
the results counts as one more step at the end.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import groupby

from compiler.ir.dims import product
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import Pointwise, Rowwise, has
from compiler.ir.region import Region, leading_axes
from compiler.ir.types import TOKEN


def kernels(g: Graph) -> list[list[Op]]:
    """List the ops of each step, in order; adjacent ops with one kernel label form one step."""
    labelled = ((index if op.kernel is None else -1, op) for index, op in enumerate(g.ops()))
    groups = groupby(labelled, key=lambda pair: (pair[0], pair[1].kernel))
    return [[op for _, op in group] for _, group in groups]


def lives(g: Graph) -> dict[Var, tuple[int, int]]:
    """Return the live interval of each temporary, `start <= step < stop`, in order of writing.

    A var is live until its last data reader is done; a result is live past the last step; a var
    that a later version overwrites is live at least until that version is written. Excludes feeds,
    state, tokens, and vars that are internal to their kernel.
    """
    steps = kernels(g)
    results = set(g.results)
    intervals: dict[Var, tuple[int, int]] = {}
    for step, ops in enumerate(steps):
        written = [(op, var) for op in ops for var in op.writes() if _is_temporary(var)]
        intervals |= {
            v: (step, step + 1) for op, v in written if v in results or not _is_internal(g, op, v)
        }
        for var in (var for op in ops for var in held(op) if var in intervals):
            intervals[var] = (intervals[var][0], step + 1)
    for var in (var for var in g.results if var in intervals):
        intervals[var] = (intervals[var][0], len(steps) + 1)
    return intervals


class InPlaceRules:
    """What a kernel may write to the memory of what it reads, for any number of its values.

    A kernel that is the last reader of `old` may write `new` to the same memory if the op writing
    `new` declares it in place of the slot that holds `old`, or if the whole kernel is pointwise and
    both have one type, so that elements map to the same elements. `old` must not be read by a later
    op of the kernel, nor by an anchor before it, which may work on one tile while another is
    written, nor by another part of the launch. On a target, a part with reductions of rows is two
    kernels, which must not each overwrite what the other reads. `stored` are the temporaries that
    reach memory.
    """

    def __init__(self, ops: Sequence[Op], stored: Container[Var] = ()) -> None:
        self.ops = ops
        self._stored = stored
        self._reads: dict[Var, list[int]] = {}
        for index, op in enumerate(ops):
            for var in dict.fromkeys(op.needs_data()):
                self._reads.setdefault(var, []).append(index)
        self._writer: dict[Var, int] = {}
        for index, op in enumerate(ops):
            for var in op.writes():
                self._writer.setdefault(var, index)
        self._maps_elements: dict[int | None, bool] = {}
        self._spread: set[Var] | None = None
        self._splits: dict[int | None, _Split] = {}

    def allow(self, old: Var, new: Var) -> bool:
        """Return whether `new` may be written to the memory of `old`."""
        index = self._writer[new]
        writer = self.ops[index]
        if any(self._holds(other, index, writer) for other in self._reads.get(old, ())):
            return False
        if writer.target is not None and self._crosses(old, writer):
            return False
        if _is_declared_in_place(writer, old, new):
            return True
        if old.type != new.type or not self._is_elementwise(writer):
            return False
        return old not in self._spread_reads()

    def written_after(self, op: Op) -> set[Var]:
        """Return what later ops of the kernel write."""
        return {var for later in self.ops[self.ops.index(op) + 1 :] for var in later.writes()}

    def _holds(self, other: int, index: int, writer: Op) -> bool:
        """Return whether a reader needs what it reads once the op at `index` writes."""
        reader = self.ops[other]
        is_anchor = other < index and not isinstance(reader.defn, Pointwise)
        return reader.part != writer.part or other > index or is_anchor

    def _crosses(self, old: Var, writer: Op) -> bool:
        """Return whether two kernels of a part would each overwrite what the other reads.

        The kernel of elements runs after that of rows and may overwrite what it reads, not the
        reverse.
        """
        part = writer.part
        if part not in self._splits:
            ops = [op for op in self.ops if op.part == part]
            self._splits[part] = _Split(ops, self._stored)
        split = self._splits[part]
        if writer in split.rows:
            return old in split.read_by_elements
        return split.is_reversed and old in split.read_by_rows

    def _is_elementwise(self, writer: Op) -> bool:
        """Return whether all ops of the writer's part map elements to elements, in one kernel.

        On a target, another shape is another kernel, which may still read what is overwritten.
        """
        part = writer.part
        if part not in self._maps_elements:
            ops = [op for op in self.ops if op.part == part]
            shapes = {var.type.shape for op in ops for var in op.writes()}
            plain = all(isinstance(op.defn, Pointwise) for op in ops)
            self._maps_elements[part] = plain and (writer.target is None or len(shapes) == 1)
        return self._maps_elements[part]

    def _spread_reads(self) -> set[Var]:
        if self._spread is None:
            self._spread = {var for op in self.ops for var in spread_reads(op)}
        return self._spread


class _Split:
    """The two kernels of a part with reductions of rows: `rows` are the ops that depend on one.

    `is_reversed` if a new version of a value, whose memory cannot be chosen, makes the kernel of
    rows overwrite what that of elements reads.
    """

    def __init__(self, ops: Sequence[Op], stored: Container[Var]) -> None:
        self.rows: set[Op] = set()
        self.read_by_rows: set[Var] = set()
        self.read_by_elements: set[Var] = set()
        self.is_reversed = False
        reduced: set[Var] = set()
        for op in ops:
            if isinstance(op.defn, Rowwise) or not reduced.isdisjoint(op.needs_data()):
                self.rows.add(op)
                reduced.update(op.writes())
        if not self.rows:
            return
        for op in reversed(ops):
            kept = any(var in stored or var.role != "temp" for var in op.writes())
            if op in self.rows:
                self.read_by_rows.update(op.needs_data())
            elif kept or not self.read_by_elements.isdisjoint(op.writes()):
                self.read_by_elements.update(op.needs_data())
            if not self.read_by_rows.isdisjoint(op.writes()):
                self.read_by_rows.update(op.needs_data())  # computed in both
        self.is_reversed = any(
            var.overwrites in self.read_by_elements for op in self.rows for var in op.writes()
        )


def spread_reads(op: Op) -> set[Var]:
    """Return what a pointwise op reads of which element i is not all that it needs to compute
    element i: it is broadcast, or a tensor of RNG keys, of which all elements use a single one.
    """
    if not isinstance(op.defn, Pointwise):
        return set()
    views, needed = op.defn.views(op.defn.types_of(op.inputs)), set(op.needs_data())
    return {
        var
        for slot, vars in op.inputs.items()
        if slot in views
        for var in vars
        if var in needed and product(views[slot]) != var.type.numel
    }


def _is_declared_in_place(op: Op, old: Var, new: Var) -> bool:
    """Return whether an op declares that it may write an output in place of the input `old`.

    The op must not read `old` from any other slot.
    """
    slot = next(slot for slot, vars in op.outputs.items() if new in vars)
    allowed = op.defn.overwritable_inputs(slot)
    old_slots = [input_slot for input_slot, vars in op.inputs.items() if old in vars]
    return bool(old_slots) and all(input_slot in allowed for input_slot in old_slots)


def supports_strided_rows(g: Graph, var: Var, region: Region) -> bool:
    """Return whether every op that reads or writes a var supports the strides it would have."""
    axes = leading_axes(var.type, region.row)
    if axes is None or var in g.results:
        return False
    return all(
        _supports_strides(op, var, axes)
        for op in (g.producer(var), *g.readers(var))
        if op is not None
    )


def _supports_strides(op: Op, var: Var, axes: int) -> bool:
    """Return whether an op supports strided rows in `var`.

    Pointwise host code does unless it reshapes an operand. Device kernels index elements and do
    not.
    """
    if op.body is not None or op.target is not None:
        return False
    if isinstance(op.defn, Pointwise):
        return _is_unreshaped(op, op.defn, var)
    if not has(op.defn, "lower"):
        return True
    operands = {**op.inputs, **op.outputs}
    mine = (slot for slot, vars in operands.items() if var in vars)
    return all(op.defn.supports_strided_rows(slot, axes) for slot in mine)


def _is_unreshaped(op: Op, defn: Pointwise, var: Var) -> bool:
    """Return whether all inputs, as viewed by the op, and all outputs have the shape of `var`."""
    shapes = defn.views(defn.types_of(op.inputs)).values()
    return all(shape == var.type.shape for shape in shapes) and all(
        output.type.shape == var.type.shape for output in op.writes()
    )


def _is_temporary(var: Var) -> bool:
    return var.role == "temp" and var.type != TOKEN


def _is_internal(g: Graph, op: Op, var: Var) -> bool:
    """Return whether a var is written and read within one kernel, and so never reaches memory.

    Of the outputs of an anchor, only the one that feeds the epilogue can be internal.
    """
    if op.kernel is None or var.overwrites is not None or g.overwriter(var) is not None:
        return False
    if not isinstance(op.defn, Pointwise) and var not in op.outputs.get(
        op.defn.epilogue_output(op.target), []
    ):
        return False
    readers = (reader for reader in g.readers(var) if var in reader.needs_data())
    return all(reader.kernel == op.kernel for reader in readers)


def held(op: Op) -> list[Var]:
    """List the vars whose memory an op needs: inputs, and earlier versions that it overwrites."""
    over = [var.overwrites for var in op.writes() if var.overwrites is not None]
    return op.needs_data() + over
