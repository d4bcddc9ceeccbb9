"""Conversion of one block: a walk that maps each name to the graph var it denotes at that point.

A name that is written twice becomes several vars; the order of ops is kept. A variable may map to
several vars: its data, and its companions. A block that an op owns becomes the body of a graph op:
values of the enclosing block are captured as its feeds, values it leaves are its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias, cast

from compiler.errors import CompileError, did_you_mean
from compiler.ir.conversion.block_owners import SUB_BLOCK
from compiler.ir.conversion.coalesced_memory import CoalescedMemory
from compiler.ir.conversion.companions import LOD, ROWS, Companions, Slots
from compiler.ir.conversion.current_vars import CurrentVars
from compiler.ir.conversion.overridden_sizes import with_known_sizes
from compiler.ir.conversion.remote_lookups import as_remote
from compiler.ir.conversion.walk_rules import (
    clobbers,
    deleted_error,
    expanded,
    graph_attributes,
    require_known_size,
)
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import GradOp, OpDef, Slot, find
from compiler.ir.opdef.type_inference import bind, check_slots, infer_types, op_text
from compiler.ir.program import EMPTY, GRAD, Block, OpDesc, VarKind
from compiler.ir.types import SAVED, TOKEN, DType, Shape, TensorType, from_fluid
from compiler.support.dataclass import dataclass

CAPTURED = "Captured"
"""The input slot with captured vars: the last feeds of the body, after saved values."""
WRITTEN = "Written"
"""The output slot for the first results of the body, before the values it saves."""
RUNS = "Runs"
"""The slot with the list of values that each iteration of a body saves for the gradient."""
ORDER = "collectives@ORDER"
"""The name of the tokens that order the collectives of a block."""
MAX_WIDENINGS = 8
"""The maximum number of times a body is converted again because captured values change size."""

_UNUSED_TYPE = TensorType(DType.FP32, (UNKNOWN,))
"""The type of an unused output whose type the op does not infer."""
_NOT_ACCUMULATED = frozenset({"fill_zeros_like", "assign"})
"""Ops that write gradient arrays without accumulation."""

Handlers: TypeAlias = "Mapping[str, Callable[[BlockWalk, OpDesc], None]]"
"""The conversion function of each op that needs one, such as ops that own blocks."""


@dataclass(frozen=True)
class SavedValue:
    """A value saved by each iteration: its name in the gradient block, its var, and its LoD."""

    name: str
    var: Var
    levels: tuple[Var, ...] = ()


class BlockWalk:
    """A walk over one block into one graph; `outer` is the walk over the enclosing block.

    It enters the blocks that ops own: `handlers` convert the ops that need more than their slots.
    `runs` maps each list of saved iterations to the walk over that body and the saved values. In a
    gradient block (`is_gradient`) gradients are local to the block, even if the enclosing block has
    one of the same name.
    """

    def __init__(
        self,
        block: Block,
        graph: Graph,
        outer: BlockWalk | None = None,
        *,
        handlers: Handlers | None = None,
        is_gradient: bool = False,
    ) -> None:
        self.block, self.graph, self.outer = block, graph, outer
        self.handlers: Handlers = handlers or {}
        self.is_gradient = is_gradient
        self.current = CurrentVars(graph)
        self.companions = Companions(graph, self.current, outer.companions if outer else None)
        self.shared = CoalescedMemory()
        self.runs: dict[str, tuple[BlockWalk, list[SavedValue]]] = {}
        self.last_token: Var | None = None

    # ---- feeds and results ----

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
        levels = self.companions.lods.setdefault(self.current[base], [])
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
        self.companions.rows[var] = (numbers, height)

    def result(self, name: str) -> list[Var]:
        """Return the vars of a fetched name at the end of the block: its dense data and its LoD."""
        if name not in self.current and self.is_state(name):
            return [self.param(name)]
        if name not in self.current:
            raise CompileError(
                f"fetch {name!r} is not a variable the program computes",
                hint=did_you_mean(name, self.current),
            )
        var = self.companions.densified(self.current[name])
        levels = enumerate(self.companions.lod_of(var))
        return [var, *(self._level_result(f"{name}{LOD}{i}", level) for i, level in levels)]

    def _level_result(self, name: str, level: Var) -> Var:
        """Return a LoD level under the name of the result; copies a shared level."""
        return level if level.name == name else self.copied(name, level, level.type)

    # ---- ops ----

    def add(self, op: OpDesc) -> None:
        """Add one op of the block, converting the block it owns."""
        if op.type in self.handlers:
            check_slots(op)
            self.handlers[op.type](self, op)
        elif op.is_backward and self._touches_accumulator(op):
            self._add_accumulating(op)
        else:
            self._add_plain(op)
        self.shared.written(op)

    def _add_plain(self, op: OpDesc) -> None:
        """Add an op that is converted by its slots alone."""
        check_slots(op)
        op = self._variant(as_remote(op))
        inputs = self.inputs(op)
        if steps := expanded(op, inputs):
            for step in steps:
                self.add(step)
            return
        attrs = with_known_sizes(op.type, graph_attributes(op), inputs, self.graph)
        op = OpDesc(op.type, op.inputs, op.outputs, attrs, op.source)
        defn = bind(op)
        outputs = self.outputs(op, defn, inputs)
        if defn.is_ordered():
            inputs, outputs = self.in_order(inputs, outputs)
        self.graph.op(op.type, inputs, outputs, op.attrs, op.source, last=True, defn=defn)
        self._copy_back_state(op, outputs)

    def in_order(self, inputs: Slots, outputs: Slots) -> tuple[Slots, Slots]:
        """Add token slots to a collective, so that it runs after the previous one in this block."""
        before = [self.last_token] if self.last_token is not None else []
        self.last_token = self.graph.another(ORDER, TOKEN)
        return {**inputs, "Before": before}, {**outputs, "After": [self.last_token]}

    def _variant(self, op: OpDesc) -> OpDesc:
        """Return the variant of an op for its attributes, tensor arrays, or sparse inputs."""
        if not _may_vary(find(op.type)):
            return op
        defn = bind(op)
        if kind := defn.attribute_variant():
            return OpDesc(kind, op.inputs, op.outputs, op.attrs, op.source)
        kind = defn.array_variant()
        if kind and any(self.read(name, op).type.is_array for name in op.reads()):
            return OpDesc(kind, op.inputs, op.outputs, {}, op.source)
        kind = defn.sparse_variant()
        return self._sparse_variant(op, kind) if kind and self._is_sparse(op, kind) else op

    def _is_sparse(self, op: OpDesc, kind: str) -> bool:
        """Return whether all inputs are sparse that variant `kind` requires to be sparse."""
        wanted = [slot.of for slot in find(kind).inputs().values() if slot.companion == "rows"]
        names = [name for slot in wanted for name in op.inputs.get(slot, ())]
        return bool(names) and all(self.companions.rows_of(self.read(name, op)) for name in names)

    def _sparse_variant(self, op: OpDesc, kind: str) -> OpDesc:
        """Return the sparse variant; the op itself if that does not accept the inputs."""
        sparse = OpDesc(kind, op.inputs, op.outputs, op.attrs, op.source)
        try:
            defn = bind(sparse)
            defn.infer_types(defn.types_of(self.inputs(sparse)))
        except CompileError:
            return op
        return sparse

    def coalesce(self, op: OpDesc) -> None:
        """Add a `coalesce_tensor`, whose outputs share memory from here on."""
        types = [self.read(name, op).type for name in op.inputs["Input"]]
        self._add_plain(op)
        self.shared.coalesced(op, types)

    # ---- inputs of an op ----

    def inputs(self, op: OpDesc) -> Slots:
        """Return the vars an op reads, with the companions that it declares."""
        cls = find(op.type)
        declared = {slot: names for slot, names in op.inputs.items() if slot in cls.slots}
        slots = map_vars(declared, lambda name: self.read(name, op))
        inputs = {
            slot: self.companions.densify_unsupported(cls, slot, vars)
            for slot, vars in slots.items()
        }
        for slot in cls.inputs().values():
            if slot.companion == "previous":
                inputs[slot.name] = self._previous(op, slot)
            elif slot.companion and slot.of:
                inputs[slot.name] = self.companions.of_inputs(op, slot, inputs)
        return {slot: vars for slot, vars in inputs.items() if vars}

    def _previous(self, op: OpDesc, slot: Slot) -> list[Var]:
        """Return the value that an output has before the op; empty if it has none."""
        names = [name for name in op.outputs.get(slot.of, ()) if name != EMPTY]
        return [var for name in names[:1] if (var := self.lookup(name, op)) is not None]

    def read(self, name: str, op: OpDesc) -> Var:
        """Return the current var of a name; declares state and captured vars at their first read.

        If memory that the name shares was written, its value is refreshed first. Raises
        CompileError if the name has no value or was deleted.
        """
        self.shared.refresh(self, name)
        if name in self.current.deleted:
            raise deleted_error(name, op, self.current.deleted[name])
        var = self.lookup(name, op)
        if var is not None:
            return var
        raise CompileError(
            f"variable {name!r} has no value: no op before this one writes it and it is not fed",
            op=op_text(op),
            source=op.source,
            hint="feed it, or let an op before this one write it",
        )

    def lookup(self, name: str, op: OpDesc) -> Var | None:
        """Return the current var of a name, in this or an enclosing block, or None."""
        if name in self.current or not self.has_value(name):
            return self.current.get(name)
        if self.outer is not None and self.outer.has_value(name):
            return self.current.capture(name, self.outer.read(name, op))
        return self.param(name)

    def has_value(self, name: str) -> bool:
        """Return whether a name has a value in this or an enclosing block."""
        if name in self.current:
            return True
        if self.is_gradient and GRAD in name:
            return False
        return self.is_state(name) or (self.outer is not None and self.outer.has_value(name))

    def is_state(self, name: str) -> bool:
        """Return whether a name is persistable."""
        desc = self.block.lookup(name)
        return desc is not None and desc.persistable

    def param(self, name: str) -> Var:
        """Declare persistable state in its declared type.

        Raises CompileError if its size is data-dependent, since it could not stay in place.
        """
        type = require_known_size(name, self.declared(name))
        return self.current.define(name, self.graph.param(name, type))

    def declared(self, name: str) -> TensorType:
        """Return the declared type of a variable; CompileError if it has no declared shape."""
        desc = self.block.lookup(name)
        if desc is None or desc.dims is None:
            raise CompileError(f"variable {name!r} has no declared shape")
        type = from_fluid(desc.dims, desc.element)
        return replace(type, is_array=desc.kind is VarKind.TENSOR_ARRAY)

    # ---- outputs of an op ----

    def outputs(self, op: OpDesc, defn: OpDef, inputs: Slots) -> Slots:
        """Create the vars an op writes, in the inferred types, and their companions."""
        inferred = infer_types(defn, defn.types_of(inputs), op)
        outputs = {
            slot: [self._write(op, slot, name, _item(inferred.get(slot), i), inputs)
                   for i, name in enumerate(names)]
            for slot, names in op.outputs.items()
            if slot in defn.slots and any(name != EMPTY for name in names)
        }  # fmt: skip
        written = self.companions.create(defn, outputs, inferred, inputs)
        self.companions.share(defn, inputs, outputs)
        return outputs | written

    def _write(
        self, op: OpDesc, slot: str, name: str, type: TensorType | None, inputs: Slots
    ) -> Var:
        """Create the var for a written name: new, a new version, or state in the same storage.

        An unused output (`@EMPTY@`) among others gets a var too, which keeps the indices.
        """
        if name == EMPTY:
            return self.graph.fresh(f"{slot}@UNUSED", type or _UNUSED_TYPE)
        type = type or self.declared(name)
        previous = self.current.get(name)
        if previous is None and not self.is_state(name):
            return self.current.define(name, self.graph.another(name, type))
        if previous is None:
            return self.current.define(name, self.graph.param(name, require_known_size(name, type)))
        state = previous.role == "param"
        if state and clobbers(op, slot, previous, inputs):
            return self.graph.fresh(name + "@new", type)
        return self.current.define(
            name, self.graph.next_version(previous, type, same_storage=state)
        )

    def _copy_back_state(self, op: OpDesc, outputs: Slots) -> None:
        """Copy state that an op could not write in place from the temporary it wrote instead."""
        for slot, vars in outputs.items():
            for name, var in zip(op.outputs.get(slot, ()), vars, strict=False):
                if name != EMPTY and self.current.get(name) is not var:
                    last = self.current[name]
                    after = self.graph.next_version(last, var.type, same_storage=True)
                    self.graph.op(copying(var), {"X": [var]}, {"Out": [after]}, last=True)
                    if rows := self.companions.rows_of(var):
                        self.companions.rows[after] = rows
                    self.current.define(name, after)

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
            self._add_plain(_renamed(op, "add_to_array", {}))
        elif op.type == "read_from_array":
            self._add_plain(_renamed(op, "take_from_array", {"XOut": op.inputs["X"]}))
        else:
            accumulators = [
                name for name in op.writes() if name in self.current and self._is_accumulator(name)
            ]
            before = {name: self.current[name] for name in accumulators}
            self._add_plain(op)
            for name, var in before.items():
                self.accumulate(name, [var, self.current[name]], op)

    def accumulate(self, name: str, vars: Sequence[Var], op: OpDesc) -> Var:
        """Set a name to the sum of vars, densified if some are dense."""
        dense = [self.companions.densified(var) for var in vars]
        kind = "sum_arrays" if dense[0].type.is_array else "sum"
        type = find(kind)(None).infer_types({"X": [var.type for var in dense]})["Out"]
        out = self.graph.another(name, type)
        self.graph.op(kind, {"X": dense}, {"Out": [out]}, {}, op.source, last=True)
        return self.current.define(name, out)

    # ---- bodies ----

    def body_of(self, op: OpDesc) -> Block:
        """Return the block that an op owns."""
        return self.block.owner.blocks[int(op.attrs[SUB_BLOCK])]

    def inner(self, block: Block, *, is_gradient: bool = False) -> BlockWalk:
        """Return a new walk over a block nested in this one."""
        graph = Graph(f"block_{block.idx}")
        return BlockWalk(block, graph, self, handlers=self.handlers, is_gradient=is_gradient)

    def capture_updated(self, op: OpDesc, names: Iterable[str], inner: BlockWalk) -> None:
        """Capture the variables that a body will update and that already have a value.

        Arrays always have one: an array that was not written yet is empty.
        """
        for name in names:
            if name not in inner.current and not self.has_value(name):
                self._create_array(name, op)
            if name not in inner.current and self.has_value(name):
                inner.current.capture(name, self.writable(name, op))

    def _create_array(self, name: str, op: OpDesc) -> None:
        desc = self.block.lookup(name)
        if desc is None or desc.kind is not VarKind.TENSOR_ARRAY or desc.dims is None:
            return
        self._empty_array(
            name, replace(from_fluid(desc.dims, desc.element), is_array=True), op.source
        )

    def _empty_array(self, name: str, type: TensorType, source: str) -> None:
        attrs = {"dtype": type.dtype.code, "sizes": [str(size) for size in type.shape]}
        out = self.graph.another(name, type)
        self.graph.op("empty_array", {}, {"Out": [out]}, attrs, source, last=True)
        self.current.define(name, out)

    def writable(self, name: str, op: OpDesc) -> Var:
        """Return a var of a name that may be overwritten: a copy for a feed."""
        var = self.read(name, op)
        return self.copied(name, var, var.type) if var.role == "feed" else var

    def copied(self, name: str, var: Var, type: TensorType) -> Var:
        """Copy a var to new storage and set the name to the copy."""
        copy = self.graph.another(name, type)
        self.graph.op(copying(var), {"X": [var]}, {"Out": [copy]}, last=True)
        self.companions.lods[copy] = self.companions.lod_of(var)
        return self.current.define(name, copy)

    def widen(self, inner: BlockWalk, written: Iterable[str]) -> bool:
        """Copy captured values that change size to vars of dynamic size; returns whether any.

        An array that is empty before gets the dtype and the rank of the items.
        """
        pairs = [
            (n, inner.current.captured[n], inner.current[n])
            for n in written
            if n in inner.current.captured
        ]
        changed = [(n, before, left) for n, before, left in pairs if not _keeps_type(before, left)]
        for name, before, left in changed:
            creator = self.graph.producer(before)
            if creator is not None and creator.kind == "empty_array":
                self._empty_array(name, left.type, creator.source)
            else:
                self.copied(name, before, _widened(before.type, left.type))
        return bool(changed)

    def put(
        self, kind: str, op: OpDesc, inputs: Slots, inner: BlockWalk, left: Mapping[str, str],
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
            outputs[RUNS] = [self.current.define(runs, self.graph.var(runs, SAVED))]
            self.runs[runs] = (inner, list(kept))
        for mine, theirs in left.items():
            self._share_levels(mine, theirs, inner)
        inputs = {**inputs, CAPTURED: list(inner.current.captured.values())}
        if inner.last_token is not None:
            inputs, outputs = self.in_order(inputs, outputs)
        self.graph.op(kind, inputs, outputs, attrs, op.source, inner.graph, last=True)

    def _result_var(self, inside: str, outside: str, inner: BlockWalk) -> Var:
        """Return the var for a result of the body, in the storage of the value it updates."""
        type = inner.current[inside].type
        previous = self.current.get(outside) or self.graph.latest(outside)
        if previous is None and self.is_state(outside):
            previous = self.param(outside)
        if previous is None:
            return self.current.define(outside, self.graph.var(outside, type))
        same = inner.current.captured.get(inside) is previous
        type = previous.type if same and previous.type.is_open else type
        return self.current.define(
            outside, self.graph.next_version(previous, type, same_storage=same)
        )

    def _share_levels(self, inside: str, outside: str, inner: BlockWalk) -> None:
        """Give a result of the body the LoD it has inside, unless that is a saved value."""
        levels = inner.companions.lod_of(inner.current[inside])
        if all(level.role != "feed" or level.name in inner.current.captured for level in levels):
            self.companions.lods[self.current[outside]] = [
                inner.current.captured[level.name]
                if level.role == "feed"
                else self.current[level.name]
                for level in levels
            ]


@cache
def _may_vary(cls: type[OpDef]) -> bool:
    """Return whether another op may be the variant of one of a class."""
    methods = ("attribute_variant", "array_variant", "sparse_variant")
    default = GradOp if issubclass(cls, GradOp) else OpDef
    own = any(getattr(cls, name) is not getattr(default, name) for name in methods)
    return own or (issubclass(cls, GradOp) and _may_vary(cls.forward))


def _level_results(inner: BlockWalk, left: Iterable[str]) -> dict[str, str]:
    """Return the names of LoD levels created in the body, which become results too."""
    levels = [level for name in left for level in inner.companions.lod_of(inner.current[name])]
    own = dict.fromkeys(level for level in levels if level.role != "feed")
    return {inner.current.define(level.name, level).name: level.name for level in own}


def _keeps_type(before: Var, left: Var) -> bool:
    if before.type.is_array and before.type.dtype is not left.type.dtype:
        return False
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


def map_vars(slots: Mapping[str, Sequence[str]], find: Callable[[str], Var]) -> Slots:
    """Map names in slots to vars; omits empty slots."""
    mapped = {slot: [find(n) for n in names if n != EMPTY] for slot, names in slots.items()}
    return {slot: vars for slot, vars in mapped.items() if vars}


def copying(var: Var) -> str:
    """Return the kind of the op that copies a var."""
    return "copy_array" if var.type.is_array else "assign"


def _item(inferred: Any, index: int) -> TensorType | None:
    return cast("list[TensorType]", inferred)[index] if isinstance(inferred, list) else inferred
