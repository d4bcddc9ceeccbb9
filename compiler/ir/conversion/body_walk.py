"""A walk over a block that also goes into the blocks its ops own.

What a body sees of the graph around it are its feeds, what it leaves there its results; a value
that it changes is both, in one storage. Where a change of size shows only after the body was read,
the value is copied to where its size is open, and the body is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from compiler.errors import CompileError, did_you_mean
from compiler.ir.conversion.block_walk import LOD, ROWS, Scan, Slots, copying
from compiler.ir.conversion.coalesced_memory import SharedMemory
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import find
from compiler.ir.opdef.type_inference import check_slots
from compiler.ir.program import GRAD, Block, OpDesc, OpRole, VarKind
from compiler.ir.types import SAVED, DType, Shape, TensorType, from_fluid

SUB_BLOCK = "sub_block"
CAPTURED = "Captured"
"""The slot of a block-owning op whose vars its body sees as feeds, behind those that were saved."""
WRITTEN = "Written"
"""The slot of a block-owning op whose vars its body's results become, before those it saves."""
RUNS = "Runs"
"""The slot with the list of what each run of a body kept for the gradient."""
MOST_WIDENINGS = 8
"""How often a body is read again because values it changes turned out to change their sizes."""

Handlers: TypeAlias = "Mapping[str, Callable[[BlockScan, OpDesc], None]]"
"""How each op of a program that owns a block becomes ops of a graph."""


_COLLECTING = frozenset({"fill_zeros_like", "assign"})
"""Ops that say themselves what an array of gradients holds."""


@dataclass(frozen=True)
class Kept:
    """A value kept of each run: what the gradient calls it, the var inside, its LoD there."""

    name: str
    var: Var
    levels: tuple[Var, ...] = ()


@dataclass
class BlockScan(Scan):
    """A walk that also goes into the blocks that ops own.

    `runs` has, for each list of kept runs, the walk over that body and what it kept. In a block of
    gradients (`is_gradient`) every gradient is the block's own, whatever there is around it.
    """

    handlers: Handlers = field(default_factory=dict[str, "Callable[[BlockScan, OpDesc], None]"])
    runs: dict[str, tuple[BlockScan, list[Kept]]] = field(
        default_factory=lambda: dict[str, tuple["BlockScan", list[Kept]]]()
    )
    is_gradient: bool = False
    shared: SharedMemory = field(default_factory=SharedMemory)

    def feed(self, name: str, fed: Shape | TensorType) -> None:
        """Declare a feed in the shape that is given, with its element type or the declared."""
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
        """Declare the row numbers of a feed: with `x@ROWS`, the feed `x` has the values of rows."""
        var = self.current.get(name.removesuffix(ROWS))
        height = None if var is None else (self.block.vars[var.name].dims or (None,))[0]
        if var is None or height is None:
            raise CompileError(
                f"feed {name!r} has the row numbers of no feed before it whose height is declared"
            )
        numbers = self.graph.feed(name, TensorType(DType.INT64, tuple(shape)))
        self.rows[var] = (numbers, height)

    def result(self, name: str) -> list[Var]:
        """The vars a fetched name stands for at the end: its dense data and its LoD."""
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
        """A level of a result's LoD by the name of that result: another's may be shared."""
        return level if level.name == name else self.copied(name, level, level.type)

    def add(self, op: OpDesc) -> None:
        """Add one op of the block, or the op that its block becomes."""
        if op.type in self.handlers:
            check_slots(op)
            self.handlers[op.type](self, op)
        elif op.role & OpRole.BACKWARD and self._writes_pot(op):
            self._add_to_pot(op)
        else:
            super().add(op)
        self.shared.written(op)

    def read(self, name: str, op: OpDesc) -> Var:
        """The var of a name; created again where memory that it shares was written."""
        self.shared.renew(self, name)
        return super().read(name, op)

    def coalesce(self, op: OpDesc) -> None:
        """Add a `coalesce_tensor`, whose outputs share memory from here on."""
        types = [self.read(name, op).type for name in op.inputs["Input"]]
        super().add(op)
        self.shared.coalesced(op, types)

    def sees(self, name: str) -> bool:
        """True where a name has a value here or further out."""
        hidden = self.is_gradient and GRAD in name and name not in self.current
        return not hidden and super().sees(name)

    def seen(self, name: str, op: OpDesc) -> Var | None:
        """The var a name stands for, if it has a value here or further out."""
        return super().seen(name, op) if self.sees(name) else None

    # ---- arrays of gradients ----

    def _writes_pot(self, op: OpDesc) -> bool:
        """True for an op of the backward pass on an array of gradients.

        Such an array collects: what is read twice, or in several runs, gets the sum of all parts.
        """
        touched = [*op.writes(), *op.inputs.get("X", [])]
        return op.type not in _COLLECTING and any(map(self._is_pot, touched))

    def _is_pot(self, name: str) -> bool:
        desc = self.block.lookup(name)
        return GRAD in name and desc is not None and desc.kind is VarKind.TENSOR_ARRAY

    def _add_to_pot(self, op: OpDesc) -> None:
        if op.type == "write_to_array":
            super().add(_renamed(op, "add_to_array", {}))
        elif op.type == "read_from_array":
            super().add(_renamed(op, "take_from_array", {"XOut": op.inputs["X"]}))
        else:
            pots = [name for name in op.writes() if name in self.current and self._is_pot(name)]
            before = {name: self.current[name] for name in pots}
            super().add(op)
            for name, var in before.items():
                self.add_up(name, [var, self.current[name]], op)

    def add_up(self, name: str, vars: Sequence[Var], op: OpDesc) -> Var:
        """From here on a name stands for the sum of vars, made dense where they differ in kind."""
        dense = [self.densified(var) for var in vars]
        kind = "sum_arrays" if dense[0].type.is_array else "sum"
        type = find(kind)(None).infer_types({"X": [var.type for var in dense]})["Out"]
        out = self.graph.another(name, type)
        self.graph.op(kind, {"X": dense}, {"Out": [out]}, {}, op.source, last=True)
        return self.note(name, out)

    # ---- bodies ----

    def body_of(self, op: OpDesc) -> Block:
        """The block an op owns."""
        return self.block.owner.blocks[int(op.attrs[SUB_BLOCK])]

    def inner(self, block: Block) -> BlockScan:
        """A walk over a block inside this one."""
        return BlockScan(block, Graph(f"block_{block.idx}"), self, handlers=self.handlers)

    def see_all(self, op: OpDesc, names: Iterable[str], inner: BlockScan) -> None:
        """Let a body see those variables that it will change and that have a value already.

        An array has one: it is empty as long as nothing was written to it.
        """
        for name in names:
            if name not in inner.current and not self.sees(name):
                self._begin_array(name, op)
            if name not in inner.current and self.sees(name):
                inner.capture(name, self.owned(name, op))

    def _begin_array(self, name: str, op: OpDesc) -> None:
        desc = self.block.lookup(name)
        if desc is None or desc.kind is not VarKind.TENSOR_ARRAY or desc.dims is None:
            return
        type = replace(from_fluid(desc.dims, desc.element), is_array=True)
        attrs = {"dtype": desc.element.code, "sizes": [str(size) for size in type.shape]}
        out = self.graph.another(name, type)
        self.graph.op("empty_array", {}, {"Out": [out]}, attrs, op.source, last=True)
        self.note(name, out)

    def owned(self, name: str, op: OpDesc) -> Var:
        """The var of a name that may be written over: a copy of a feed."""
        var = self.read(name, op)
        return self.copied(name, var, var.type) if var.role == "feed" else var

    def copied(self, name: str, var: Var, type: TensorType) -> Var:
        """Give a name the value of a var in storage of its own."""
        copy = self.graph.another(name, type)
        self.graph.op(copying(var), {"X": [var]}, {"Out": [copy]}, last=True)
        self.lods[copy] = self.lod_of(var)
        return self.note(name, copy)

    def widen(self, inner: BlockScan, written: Iterable[str]) -> bool:
        """Copy what a body changes in size to where size is open; tells whether there was any."""
        pairs = [(n, inner.captured[n], inner.current[n]) for n in written if n in inner.captured]
        changed = [(n, seen, left) for n, seen, left in pairs if not _keeps_type(seen, left)]
        for name, seen, left in changed:
            self.copied(name, seen, _widened(seen.type, left.type))
        return bool(changed)

    def put(
        self, kind: str, op: OpDesc, inputs: Slots, inner: BlockScan, left: Mapping[str, str],
        kept: Sequence[Kept] = (), runs: str = "", **attrs: bool,
    ) -> None:  # fmt: skip
        """Add the op whose body a walk has made.

        `left` maps names inside to the names outside under which they are left; `kept` is kept of
        each run in the list called `runs`.
        """
        left = {**left, **_levels(inner, left)}
        saved = [var for each in kept for var in (each.var, *each.levels)]
        inner.graph.results = [*(inner.current[name] for name in left), *saved]
        outputs = {WRITTEN: [self._left(*names, inner) for names in left.items()]}
        if runs:
            outputs[RUNS] = [self.note(runs, self.graph.var(runs, SAVED))]
            self.runs[runs] = (inner, list(kept))
        for mine, theirs in left.items():
            self._share_levels(mine, theirs, inner)
        inputs = {**inputs, CAPTURED: list(inner.captured.values())}
        if inner.last_token is not None:
            inputs, outputs = self.in_order(inputs, outputs)
        self.graph.op(kind, inputs, outputs, attrs, op.source, inner.graph, last=True)

    def _left(self, inside: str, outside: str, inner: BlockScan) -> Var:
        """The var a body leaves behind: it lives where the value stood before, if there was one."""
        type = inner.current[inside].type
        previous = self.current.get(outside) or self.graph.latest(outside)
        if previous is None and self.is_state(outside):
            previous = self.param(outside)
        if previous is None:
            return self.note(outside, self.graph.var(outside, type))
        same = inner.captured.get(inside) is previous
        type = previous.type if same and previous.type.is_open else type
        return self.note(outside, self.graph.next_version(previous, type, same_storage=same))

    def _share_levels(self, inside: str, outside: str, inner: BlockScan) -> None:
        """What a body leaves has the LoD it has inside, unless that came with one of its runs."""
        levels = inner.lod_of(inner.current[inside])
        if all(level.role != "feed" or level.name in inner.captured for level in levels):
            self.lods[self.current[outside]] = [
                inner.captured[level.name] if level.role == "feed" else self.current[level.name]
                for level in levels
            ]


def _levels(inner: BlockScan, left: Iterable[str]) -> dict[str, str]:
    """The names of LoD levels that a body made for what it leaves, now known by these names."""
    made = [level for name in left for level in inner.lod_of(inner.current[name])]
    own = dict.fromkeys(level for level in made if level.role != "feed")
    return {inner.note(level.name, level).name: level.name for level in own}


def _keeps_type(seen: Var, left: Var) -> bool:
    same = seen.type.shape == left.type.shape
    return same or (
        seen.type.rank == left.type.rank
        and seen.type.is_open
        and _widened(seen.type, left.type) == seen.type
    )


def _widened(a: TensorType, b: TensorType) -> TensorType:
    """A type open in every axis in which two types differ."""
    if a.rank != b.rank:
        raise CompileError(f"a variable changes from {a} to {b}: its number of axes must stay")
    pairs = zip(a.shape, b.shape, strict=True)
    return a.with_shape([mine if mine == other else UNKNOWN for mine, other in pairs])


def _renamed(op: OpDesc, type: str, outputs: Mapping[str, Sequence[str]]) -> OpDesc:
    return OpDesc(type, op.inputs, {**op.outputs, **outputs}, {}, op.source)


def written_outside(block: Block) -> list[str]:
    """Names a block, or one inside it, writes that belong around it, in order of first write."""
    written = dict.fromkeys(name for op in block.ops for name in _writes(block, op))
    return [name for name in written if name not in block.vars]


def _writes(block: Block, op: OpDesc) -> Iterator[str]:
    yield from op.writes()
    if SUB_BLOCK in op.attrs:
        yield from written_outside(block.owner.blocks[int(op.attrs[SUB_BLOCK])])


def reads_inside(block: Block) -> Iterator[str]:
    """Every name the ops of a block, and of those inside it, read."""
    for op in block.ops:
        yield from op.reads()
        if SUB_BLOCK in op.attrs:
            yield from reads_inside(block.owner.blocks[int(op.attrs[SUB_BLOCK])])
