"""Plan: the finished list. Steps in order, what each reads and writes, buffers with their lives.

`freeze` throws the graph away: labels become steps, places and buffers, and nothing changes any
more. Sizes stay expressions of the names that binding will know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from compiler.ir.body_scan import CAPTURED, RUNS, WRITTEN
from compiler.ir.dims import Dim, Size
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.liveness import kernels, lives
from compiler.ir.opdef import OpDef
from compiler.ir.types import TensorType


@dataclass(frozen=True)
class Tensor:
    """A named array at a module's edge: a feed, persistable state, or a fetch.

    `dtype` is NumPy's name. `given` is true for state that must exist before the first step; state
    that a step writes before it reads it is made when missing.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    given: bool = False


@dataclass(frozen=True)
class Buffer:
    """Memory of the arena: `nbytes` alive in the steps `start <= step < stop`."""

    name: str
    nbytes: Size
    start: int
    stop: int


class Place(Enum):
    """Where the data of a value stands."""

    FEED = "feed"
    PARAM = "param"
    BUFFER = "buffer"
    LOCAL = "local"
    INNER = "inner"


Storage: TypeAlias = tuple[Place, "str | int"]


@dataclass(frozen=True)
class Value:
    """A var, frozen. Two values share memory exactly where `place` and `home` are equal.

    `home` is the buffer's number, the param's name, or the label of what stands by itself.
    `INNER` values live in no memory: their kernel makes and uses them.
    """

    label: str
    type: TensorType
    place: Place
    home: str | int

    @property
    def storage(self) -> Storage:
        """What two values have in common exactly where they share memory."""
        return (self.place, self.home)


@dataclass(frozen=True)
class PlannedOp:
    """An op, frozen: its definition and the values in its slots.

    `body` are a block's steps, `given` the values they get of a run that was kept, and `kept` those
    they leave of each run.
    """

    kind: str
    defn: OpDef
    inputs: Mapping[str, tuple[Value, ...]]
    outputs: Mapping[str, tuple[Value, ...]]
    source: str
    text: str
    body: tuple[Step, ...] = ()
    given: tuple[Value, ...] = ()
    kept: tuple[Value, ...] = ()

    @property
    def values(self) -> list[Value]:
        """Everything it reads and writes."""
        sides = (self.inputs, self.outputs)
        return [value for side in sides for values in side.values() for value in values]


@dataclass(frozen=True)
class Step:
    """One kernel: an op, or pointwise ops that fuse. Values in `dying` are not read later."""

    index: int
    ops: tuple[PlannedOp, ...]
    dying: frozenset[Value] = frozenset()


@dataclass(frozen=True)
class Plan:
    """All a target needs to write code, and nothing it may change."""

    name: str
    dims: tuple[str, ...]
    feeds: tuple[Value, ...]
    params: tuple[Tensor, ...]
    results: tuple[Value, ...]
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]

    def __str__(self) -> str:
        return _show(self)


def freeze(g: Graph) -> Plan:
    """The plan of a graph whose passes have run."""
    freezer = _Freezer(lives(g))
    freezer.slots()
    steps = tuple(freezer.step(i, ops) for i, ops in enumerate(kernels(g)))
    return Plan(
        name=g.name,
        dims=_dim_names(g),
        feeds=tuple(freezer.value(var) for var in g.feeds()),
        params=tuple(_param(g, var) for var in g.params()),
        results=tuple(freezer.value(var) for var in g.results),
        steps=steps,
        buffers=tuple(freezer.buffers),
    )


def _dim_names(g: Graph) -> tuple[str, ...]:
    """The names binding must know, in the order the feeds bring them."""
    sizes = (size for var in g.feeds() for size in var.type.shape if isinstance(size, Dim))
    return tuple(dict.fromkeys(name for size in sizes for name in size.names))


def tensor(name: str, type: TensorType, given: bool = False) -> Tensor:
    """A type at a module's edge."""
    return Tensor(name, type.dtype.numpy.name, type.shape, given)


def _param(g: Graph, var: Var) -> Tensor:
    return tensor(var.name, var.type, given=g.producer(var) is None)


@dataclass
class _Freezer:
    """Vars to values, slots to buffers."""

    lives: Mapping[Var, tuple[int, int]]
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    values: dict[Var, Value] = field(default_factory=dict[Var, Value])
    buffer_of: dict[int, int] = field(default_factory=dict[int, int])

    def slots(self) -> None:
        """A buffer for every slot: alive from its first var's birth to its last var's end."""
        spans: dict[int, list[tuple[int, int]]] = {}
        sizes: dict[int, Size] = {}
        for var, life in self.lives.items():
            if var.slot is not None:
                spans.setdefault(var.slot, []).append(life)
                sizes[var.slot] = var.type.nbytes
        for slot, parts in sorted(spans.items()):
            start, stop = min(a for a, _ in parts), max(b for _, b in parts)
            self.buffer_of[slot] = len(self.buffers)
            self.buffers.append(Buffer(f"s{slot}", sizes[slot], start, stop))

    def value(self, var: Var) -> Value:
        """The frozen form of a var, made once."""
        if var not in self.values:
            place, home = self._home(var)
            self.values[var] = Value(var.label, var.type, place, home)
        return self.values[var]

    def _home(self, var: Var) -> tuple[Place, str | int]:
        if var.role == "feed":
            return Place.FEED, var.name
        if var.role == "param":
            return Place.PARAM, var.name
        if var.slot is not None:
            return Place.BUFFER, self.buffer_of[var.slot]
        return (Place.LOCAL if var in self.lives else Place.INNER), var.storage.label

    def step(self, index: int, ops: list[Op]) -> Step:
        """One kernel at a place in the order."""
        read = dict.fromkeys(var for op in ops for var in op.needs_data() if var in self.lives)
        dying = frozenset(self.value(var) for var in read if self.lives[var][1] == index + 1)
        return Step(index, tuple(self.op(op, index) for op in ops), dying)

    def op(self, op: Op, index: int) -> PlannedOp:
        """One op; the vars of its body stand for the values of the graph around it."""
        sides = [
            {slot: tuple(map(self.value, vars)) for slot, vars in side.items()}
            for side in (op.inputs, op.outputs)
        ]
        planned = PlannedOp(op.kind, op.defn, sides[0], sides[1], op.source, repr(op))
        return planned if op.body is None else self._with_body(planned, op, op.body, index)

    def _with_body(self, planned: PlannedOp, op: Op, body: Graph, index: int) -> PlannedOp:
        """The vars of a body are values around it, or its own: in a buffer, or where they are."""
        captured, written = op.inputs.get(CAPTURED, []), op.outputs.get(WRITTEN, [])
        feeds = body.feeds()
        given, seen = feeds[: len(feeds) - len(captured)], feeds[len(feeds) - len(captured) :]
        pairs = [*zip(seen, captured, strict=True), *zip(body.results, written, strict=False)]
        self.values |= {mine: self.value(theirs) for mine, theirs in pairs}
        for var in (var for var in body.vars() if var not in self.values):
            place = Place.LOCAL if var in given or var.type.is_open else Place.BUFFER
            self.values[var] = self._own(body, var, place, index)
        kept = body.results[len(written) :] if RUNS in op.outputs else []
        return replace(
            planned,
            body=tuple(Step(index, (self.op(each, index),)) for each in body.ops()),
            given=tuple(map(self.value, given)),
            kept=tuple(map(self.value, kept)),
        )

    def _own(self, body: Graph, var: Var, place: Place, index: int) -> Value:
        before = self.values.get(var.storage)
        if before is not None:
            return Value(var.label, var.type, before.place, before.home)
        name = f"{body.name}.{var.label}"
        if place is Place.LOCAL:
            return Value(var.label, var.type, place, name)
        self.buffers.append(Buffer(name, var.type.nbytes, index, index + 1))
        return Value(var.label, var.type, place, len(self.buffers) - 1)


# ---- text --------------------------------------------------------------------------------------


def _show(plan: Plan) -> str:
    """A plan for people: buffers with lives, then steps with what each frees."""
    lines = [f"plan {plan.name}({', '.join(plan.dims)}) {{"]
    lines += [f"  feed {value.label}: {value.type}" for value in plan.feeds]
    lines += [f"  param {_tensor_text(each)}" for each in plan.params]
    lines += [f"  buffer {i}: {b.nbytes} bytes, steps {b.start}..{b.stop - 1}"
              for i, b in enumerate(plan.buffers)]  # fmt: skip
    for step in plan.steps:
        lines += _show_step(step, "  ")
    lines += [f"  return {', '.join(_show_value(value) for value in plan.results)}", "}"]
    return "\n".join(lines) + "\n"


def _tensor_text(tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.shape))
    return f"{tensor.name}: {tensor.dtype}[{shape}]" + ("" if tensor.given else " (made here)")


def _show_step(step: Step, indent: str) -> list[str]:
    lines = [f"{indent}step {step.index}" + (":" if len(step.ops) == 1 else ", fused:")]
    for op in step.ops:
        outputs = ", ".join(_show_value(v) for values in op.outputs.values() for v in values)
        inputs = ", ".join(_show_value(v) for values in op.inputs.values() for v in values)
        lines.append(
            f"{indent}  {outputs} = {op.kind}({inputs})" + f"  // {op.source}" * bool(op.source)
        )
        for inner in op.body:
            lines += _show_step(inner, indent + "    ")
    return lines


def _show_value(value: Value) -> str:
    where = f"@{value.home}" if value.place is Place.BUFFER else ""
    return value.label + where
