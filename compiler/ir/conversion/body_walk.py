"""Conversion of a block including the blocks that its ops own.

The values that a body captures from the enclosing graph are its feeds; the values it defines there
are its results; a value that it updates is both, in one storage. If a body is found to change the
size of a captured value, the value is copied to a var of dynamic size, and the body is converted
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from compiler.errors import CompileError, did_you_mean
from compiler.ir.conversion.block_walk import LOD, ROWS, BlockWalk, Slots, copying
from compiler.ir.conversion.coalesced_memory import CoalescedMemory
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import find
from compiler.ir.opdef.type_inference import check_slots
from compiler.ir.program import GRAD, Block, OpDesc, OpRole, VarKind
from compiler.ir.types import SAVED, DType, Shape, TensorType, from_fluid

SUB_BLOCK = "sub_block"
CAPTURED = "Captured"
"""The input slot with captured vars: the last feeds of the body, after saved values."""
WRITTEN = "Written"
"""The output slot for the first results of the body, before the values it saves."""
RUNS = "Runs"
"""The slot with the list of values that each iteration of a body saves for the gradient."""
MAX_WIDENINGS = 8
"""The maximum number of times a body is converted again because captured values change size."""

Handlers: TypeAlias = "Mapping[str, Callable[[BodyWalk, OpDesc], None]]"
"""The conversion function of each op that needs one, such as ops that own blocks."""


_NOT_ACCUMULATED = frozenset({"fill_zeros_like", "assign"})
"""Ops that write gradient arrays without accumulation."""


@dataclass(frozen=True)
class SavedValue:
    """A value saved by each iteration: its name in the gradient block, its var, and its LoD."""

    name: str
    var: Var
    levels: tuple[Var, ...] = ()


@dataclass
class BodyWalk(BlockWalk):
    """A walk over a block that also enters the blocks that its ops own.

    `runs` maps each list of saved iterations to the walk over that body and the saved values. In a
    gradient block (`is_gradient`) gradients are local to the block, even if the enclosing block has
    one of the same name.
    """

    handlers: Handlers = field(default_factory=dict[str, "Callable[[BodyWalk, OpDesc], None]"])
    runs: dict[str, tuple[BodyWalk, list[SavedValue]]] = field(
        default_factory=lambda: dict[str, tuple["BodyWalk", list[SavedValue]]]()
    )
    is_gradient: bool = False
    shared: CoalescedMemory = field(default_factory=CoalescedMemory)

    def feed(self, name: str, fed: Shape | TensorType) -> None:
        """Declare a feed with a shape, or with a type that overrides the declared element type."""
        typed, shape = (fed, fed.shape) if isinstance(fed, TensorType) else (None, tuple(fed))
        if name.endswith(ROWS):
            self._feed_rows(name, shape)
            return
        base, is_level, level = name.partition(LOD)
        desc = self.block.lookup(base)
        if desc is None:
            raise CompileError(f"feed {base!r} is not a variable of the program")
        if not is_level:
            self.current[name] = self.graph.feed(name, typed or TensorType(desc.element, shape))
            return
        levels = self.lods.setdefault(self.current[base], [])
        if level != str(len(levels)):
            raise CompileError(f"feed {name!r} comes before level {len(levels)} of that LoD")
        levels.append(self.graph.feed(name, TensorType(DType.INT64, shape)))

    def _feed_rows(self, name: str, shape: Shape) -> None:
        """Declare the row indices of a sparse feed: `x@ROWS` for the rows of values in feed `x`."""
        var = self.current.get(name.removesuffix(ROWS))
        height = None if var is None else (self.block.vars[var.name].dims or (None,))[0]
        if var is None or height is None:
            raise CompileError(
                f"feed {name!r} has row indices, but no feed with a declared height comes before it"
            )
        numbers = self.graph.feed(name, TensorType(DType.INT64, tuple(shape)))
        self.rows[var] = (numbers, height)

    def result(self, name: str) -> list[Var]:
        """Return the vars of a fetched name at the end of the block: its dense data and its LoD."""
        if name not in self.current and self.is_state(name):
            return [self.param(name)]
        if name not in self.current:
            raise CompileError(
                f"fetch {name!r} is not a variable the program computes",
                hint=did_you_mean(name, self.current),
            )
        var = self.densified(self.current[name])
        levels = enumerate(self.lod_of(var))
        return [var, *(self._level_result(f"{name}{LOD}{i}", level) for i, level in levels)]

    def _level_result(self, name: str, level: Var) -> Var:
        """Return a LoD level under the name of the result; copies a shared level."""
        return level if level.name == name else self.copied(name, level, level.type)

    def add(self, op: OpDesc) -> None:
        """Add one op of the block, converting the block it owns."""
        if op.type in self.handlers:
            check_slots(op)
            self.handlers[op.type](self, op)
        elif op.role & OpRole.BACKWARD and self._touches_accumulator(op):
            self._add_accumulating(op)
        else:
            super().add(op)
        self.shared.written(op)

    def read(self, name: str, op: OpDesc) -> Var:
        """Return the current var of a name; first refreshes it if memory it shares was written."""
        self.shared.refresh(self, name)
        return super().read(name, op)

    def coalesce(self, op: OpDesc) -> None:
        """Add a `coalesce_tensor`, whose outputs share memory from here on."""
        types = [self.read(name, op).type for name in op.inputs["Input"]]
        super().add(op)
        self.shared.coalesced(op, types)

    def has_value(self, name: str) -> bool:
        """Return whether a name has a value in this or an enclosing block."""
        hidden = self.is_gradient and GRAD in name and name not in self.current
        return not hidden and super().has_value(name)

    def lookup(self, name: str, op: OpDesc) -> Var | None:
        """Return the current var of a name, in this or an enclosing block, or None."""
        return super().lookup(name, op) if self.has_value(name) else None

    # ---- arrays of gradients ----

    def _touches_accumulator(self, op: OpDesc) -> bool:
        """Return whether a backward op reads or writes an array of gradients.

        Such an array accumulates: an element read twice, or in several iterations, gets the sum.
        """
        touched = [*op.writes(), *op.inputs.get("X", [])]
        return op.type not in _NOT_ACCUMULATED and any(map(self._is_accumulator, touched))

    def _is_accumulator(self, name: str) -> bool:
        desc = self.block.lookup(name)
        return GRAD in name and desc is not None and desc.kind is VarKind.TENSOR_ARRAY

    def _add_accumulating(self, op: OpDesc) -> None:
        if op.type == "write_to_array":
            super().add(_renamed(op, "add_to_array", {}))
        elif op.type == "read_from_array":
            super().add(_renamed(op, "take_from_array", {"XOut": op.inputs["X"]}))
        else:
            accumulators = [
                name for name in op.writes() if name in self.current and self._is_accumulator(name)
            ]
            before = {name: self.current[name] for name in accumulators}
            super().add(op)
            for name, var in before.items():
                self.accumulate(name, [var, self.current[name]], op)

    def accumulate(self, name: str, vars: Sequence[Var], op: OpDesc) -> Var:
        """Set a name to the sum of vars, densified if some are dense."""
        dense = [self.densified(var) for var in vars]
        kind = "sum_arrays" if dense[0].type.is_array else "sum"
        type = find(kind)(None).infer_types({"X": [var.type for var in dense]})["Out"]
        out = self.graph.another(name, type)
        self.graph.op(kind, {"X": dense}, {"Out": [out]}, {}, op.source, last=True)
        return self.define(name, out)

    # ---- bodies ----

    def body_of(self, op: OpDesc) -> Block:
        """Return the block that an op owns."""
        return self.block.owner.blocks[int(op.attrs[SUB_BLOCK])]

    def inner(self, block: Block) -> BodyWalk:
        """Return a new walk over a block nested in this one."""
        return BodyWalk(block, Graph(f"block_{block.idx}"), self, handlers=self.handlers)

    def capture_updated(self, op: OpDesc, names: Iterable[str], inner: BodyWalk) -> None:
        """Capture the variables that a body will update and that already have a value.

        Arrays always have one: an array that was not written yet is empty.
        """
        for name in names:
            if name not in inner.current and not self.has_value(name):
                self._create_array(name, op)
            if name not in inner.current and self.has_value(name):
                inner.capture(name, self.writable(name, op))

    def _create_array(self, name: str, op: OpDesc) -> None:
        desc = self.block.lookup(name)
        if desc is None or desc.kind is not VarKind.TENSOR_ARRAY or desc.dims is None:
            return
        type = replace(from_fluid(desc.dims, desc.element), is_array=True)
        attrs = {"dtype": desc.element.code, "sizes": [str(size) for size in type.shape]}
        out = self.graph.another(name, type)
        self.graph.op("empty_array", {}, {"Out": [out]}, attrs, op.source, last=True)
        self.define(name, out)

    def writable(self, name: str, op: OpDesc) -> Var:
        """Return a var of a name that may be overwritten: a copy for a feed."""
        var = self.read(name, op)
        return self.copied(name, var, var.type) if var.role == "feed" else var

    def copied(self, name: str, var: Var, type: TensorType) -> Var:
        """Copy a var to new storage and set the name to the copy."""
        copy = self.graph.another(name, type)
        self.graph.op(copying(var), {"X": [var]}, {"Out": [copy]}, last=True)
        self.lods[copy] = self.lod_of(var)
        return self.define(name, copy)

    def widen(self, inner: BodyWalk, written: Iterable[str]) -> bool:
        """Copy captured values that change size to vars of dynamic size; returns whether any."""
        pairs = [(n, inner.captured[n], inner.current[n]) for n in written if n in inner.captured]
        changed = [(n, before, left) for n, before, left in pairs if not _keeps_type(before, left)]
        for name, before, left in changed:
            self.copied(name, before, _widened(before.type, left.type))
        return bool(changed)

    def put(
        self, kind: str, op: OpDesc, inputs: Slots, inner: BodyWalk, left: Mapping[str, str],
        kept: Sequence[SavedValue] = (), runs: str = "", **attrs: bool,
    ) -> None:  # fmt: skip
        """Add the op whose body is the graph of a finished walk.

        `left` maps names of results inside the body to names outside; `kept` are the values each
        iteration saves, in a list named `runs`.
        """
        left = {**left, **_level_results(inner, left)}
        saved = [var for value in kept for var in (value.var, *value.levels)]
        inner.graph.results = [*(inner.current[name] for name in left), *saved]
        outputs = {WRITTEN: [self._result_var(*names, inner) for names in left.items()]}
        if runs:
            outputs[RUNS] = [self.define(runs, self.graph.var(runs, SAVED))]
            self.runs[runs] = (inner, list(kept))
        for mine, theirs in left.items():
            self._share_levels(mine, theirs, inner)
        inputs = {**inputs, CAPTURED: list(inner.captured.values())}
        if inner.last_token is not None:
            inputs, outputs = self.in_order(inputs, outputs)
        self.graph.op(kind, inputs, outputs, attrs, op.source, inner.graph, last=True)

    def _result_var(self, inside: str, outside: str, inner: BodyWalk) -> Var:
        """Return the var for a result of the body, in the storage of the value it updates."""
        type = inner.current[inside].type
        previous = self.current.get(outside) or self.graph.latest(outside)
        if previous is None and self.is_state(outside):
            previous = self.param(outside)
        if previous is None:
            return self.define(outside, self.graph.var(outside, type))
        same = inner.captured.get(inside) is previous
        type = previous.type if same and previous.type.is_open else type
        return self.define(outside, self.graph.next_version(previous, type, same_storage=same))

    def _share_levels(self, inside: str, outside: str, inner: BodyWalk) -> None:
        """Give a result of the body the LoD it has inside, unless that is a saved value."""
        levels = inner.lod_of(inner.current[inside])
        if all(level.role != "feed" or level.name in inner.captured for level in levels):
            self.lods[self.current[outside]] = [
                inner.captured[level.name] if level.role == "feed" else self.current[level.name]
                for level in levels
            ]


def _level_results(inner: BodyWalk, left: Iterable[str]) -> dict[str, str]:
    """Return the names of LoD levels created in the body, which become results too."""
    levels = [level for name in left for level in inner.lod_of(inner.current[name])]
    own = dict.fromkeys(level for level in levels if level.role != "feed")
    return {inner.define(level.name, level).name: level.name for level in own}


def _keeps_type(before: Var, left: Var) -> bool:
    same = before.type.shape == left.type.shape
    return same or (
        before.type.rank == left.type.rank
        and before.type.is_open
        and _widened(before.type, left.type) == before.type
    )


def _widened(a: TensorType, b: TensorType) -> TensorType:
    """Return the type with dynamic sizes in all axes where two types differ."""
    if a.rank != b.rank:
        raise CompileError(f"a variable changes from {a} to {b}: its rank must not change")
    pairs = zip(a.shape, b.shape, strict=True)
    return a.with_shape([mine if mine == other else UNKNOWN for mine, other in pairs])


def _renamed(op: OpDesc, type: str, outputs: Mapping[str, Sequence[str]]) -> OpDesc:
    return OpDesc(type, op.inputs, {**op.outputs, **outputs}, {}, op.source)


def outer_writes(block: Block) -> list[str]:
    """List outer variables that a block or a nested block writes, in order of first write."""
    written = dict.fromkeys(name for op in block.ops for name in _writes(block, op))
    return [name for name in written if name not in block.vars]


def _writes(block: Block, op: OpDesc) -> Iterator[str]:
    yield from op.writes()
    if SUB_BLOCK in op.attrs:
        yield from outer_writes(block.owner.blocks[int(op.attrs[SUB_BLOCK])])


def nested_reads(block: Block) -> Iterator[str]:
    """Iterate over all names that the ops of a block and of nested blocks read."""
    for op in block.ops:
        yield from op.reads()
        if SUB_BLOCK in op.attrs:
            yield from nested_reads(block.owner.blocks[int(op.attrs[SUB_BLOCK])])
