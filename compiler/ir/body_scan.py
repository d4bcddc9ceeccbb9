"""A walk over a block that also goes into the blocks its ops own.

What a body sees of the graph around it are its feeds, what it leaves there its results; a value
that it changes is both, in one storage. Where a change of size shows only after the body was read,
the value is copied to where its size is open, and the body is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from compiler.errors import CompileError, did_you_mean
from compiler.ir.dims import UNKNOWN
from compiler.ir.graph import Graph, Var
from compiler.ir.infer import check_slots
from compiler.ir.program import Block, OpDesc
from compiler.ir.scan import LOD, Scan, Slots
from compiler.ir.types import SAVED, DType, Shape, TensorType

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


@dataclass
class BlockScan(Scan):
    """A walk that also goes into the blocks that ops own.

    `runs` has, for each list of kept runs, the walk over that body and the names it kept.
    """

    handlers: Handlers = field(default_factory=dict[str, "Callable[[BlockScan, OpDesc], None]"])
    runs: dict[str, tuple[BlockScan, list[str]]] = field(
        default_factory=lambda: dict[str, tuple["BlockScan", list[str]]]()
    )

    def feed(self, name: str, shape: Shape) -> None:
        """Declare a feed in the shape the caller gives and the declared element type."""
        base, is_level, level = name.partition(LOD)
        desc = self.block.lookup(base)
        if desc is None:
            raise CompileError(f"feed {base!r} is not a variable of the program")
        if not is_level:
            self.current[name] = self.graph.feed(name, TensorType(desc.element, tuple(shape)))
            return
        levels = self.lods.setdefault(self.current[base], [])
        if level != str(len(levels)):
            raise CompileError(f"feed {name!r} comes before level {len(levels)} of that LoD")
        levels.append(self.graph.feed(name, TensorType(DType.INT64, tuple(shape))))

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
        return [var, *self.lod_of(var)]

    def add(self, op: OpDesc) -> None:
        """Add one op of the block, or the op that its block becomes."""
        if op.type not in self.handlers:
            super().add(op)
            return
        check_slots(op)
        self.handlers[op.type](self, op)

    # ---- bodies ----

    def body_of(self, op: OpDesc) -> Block:
        """The block an op owns."""
        return self.block.owner.blocks[int(op.attrs[SUB_BLOCK])]

    def inner(self, block: Block) -> BlockScan:
        """A walk over a block inside this one."""
        return BlockScan(block, Graph(f"block_{block.idx}"), self, handlers=self.handlers)

    def see_all(self, op: OpDesc, names: Iterable[str], inner: BlockScan) -> None:
        """Let a body see those variables that it will change and that have a value already."""
        for name in names:
            if name not in inner.current and self.sees(name):
                inner.capture(name, self.owned(name, op))

    def owned(self, name: str, op: OpDesc) -> Var:
        """The var of a name that may be written over: a copy of a feed."""
        var = self.read(name, op)
        return self.copied(name, var, var.type) if var.role == "feed" else var

    def copied(self, name: str, var: Var, type: TensorType) -> Var:
        """Give a name the value of a var in storage of its own."""
        last = self.graph.latest(name)
        copy = (
            self.graph.var(name, type)
            if last is None
            else self.graph.next_version(last, type, same_storage=False)
        )
        self.graph.op("assign", {"X": [var]}, {"Out": [copy]}, last=True)
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
        self, kind: str, op: OpDesc, inputs: Slots, inner: BlockScan, written: Sequence[str],
        saved: Sequence[str] = (), runs: str = "",
    ) -> None:  # fmt: skip
        """Add the op whose body a walk has made; it leaves `written` and keeps `saved`."""
        written = [*written, *_levels(inner, written)]
        inner.graph.results = [inner.current[name] for name in [*written, *saved]]
        outputs = {WRITTEN: [self._left(name, inner) for name in written]}
        if runs:
            outputs[RUNS] = [self.note(runs, self.graph.var(runs, SAVED))]
            self.runs[runs] = (inner, list(saved))
        for name in written:
            self._share_levels(name, inner)
        captured = {CAPTURED: list(inner.captured.values())}
        self.graph.op(kind, inputs | captured, outputs, {}, op.source, inner.graph, last=True)

    def _left(self, name: str, inner: BlockScan) -> Var:
        """The var a body leaves behind: it lives where the value stood before, if there was one."""
        type = inner.current[name].type
        previous = self.current.get(name) or self.graph.latest(name)
        if previous is None and self.is_state(name):
            previous = self.param(name)
        if previous is None:
            return self.note(name, self.graph.var(name, type))
        same = name in inner.captured
        type = previous.type if same and previous.type.is_open else type
        return self.note(name, self.graph.next_version(previous, type, same_storage=same))

    def _share_levels(self, name: str, inner: BlockScan) -> None:
        """What a body leaves has the LoD it has inside."""
        levels = inner.lod_of(inner.current[name])
        self.lods[self.current[name]] = [
            inner.captured[level.name] if level.role == "feed" else self.current[level.name]
            for level in levels
        ]


def _levels(inner: BlockScan, written: Iterable[str]) -> list[str]:
    """The names of LoD levels that a body made for what it leaves, now known by these names."""
    made = [level for name in written for level in inner.lod_of(inner.current[name])]
    found = dict.fromkeys(level for level in made if level.role != "feed")
    for level in found:
        inner.note(level.name, level)
    return list(dict.fromkeys(level.name for level in found))


def _keeps_type(seen: Var, left: Var) -> bool:
    same = seen.type.is_array or seen.type.shape == left.type.shape
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


def written_outside(block: Block) -> list[str]:
    """Names a block, or one inside it, writes that belong around it, in order of first write."""
    written = dict.fromkeys(name for op in block.ops for name in _writes(block, op))
    return [name for name in written if name not in block.vars]


def _writes(block: Block, op: OpDesc) -> Iterator[str]:
    yield from op.writes()
    if SUB_BLOCK in op.attrs:
        yield from written_outside(block.owner.blocks[int(op.attrs[SUB_BLOCK])])


def _reads(block: Block) -> Iterator[str]:
    """Every name the ops of a block, and of those inside it, read."""
    for op in block.ops:
        yield from op.reads()
        if SUB_BLOCK in op.attrs:
            yield from _reads(block.owner.blocks[int(op.attrs[SUB_BLOCK])])


def kept_names(block: Block, runs: str) -> list[str]:
    """The names of a block's own variables that the gradient over its runs asks for."""
    ops = (op for each in block.owner.blocks for op in each.ops if SUB_BLOCK in op.attrs)
    gradients = [op for op in ops if op.type.endswith("_grad") and runs in op.reads()]
    asked = (
        name for op in gradients for name in _reads(block.owner.blocks[int(op.attrs[SUB_BLOCK])])
    )
    return [name for name in dict.fromkeys(asked) if name in block.vars]


def with_levels(inner: BlockScan, names: Iterable[str]) -> list[str]:
    """Names and those of the levels of their LoD."""
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        for level in inner.lod_of(inner.current[name]):
            found[inner.note(level.name, level).name] = None
    return list(found)
