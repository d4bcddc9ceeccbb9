"""The dataflow graph: a networkx DiGraph of ops and vars in which every var has one producer (SSA).

Only this module edits the edges. Passes read them, with networkx if they like
(`nx.descendants(g.nx, op)`), and edit in place through `Graph`. A rewrite changes ops; a decision
is a label: `op.kernel` (fusion group), `op.target` (code generator), `var.slot` (memory) and the
positions of ops. A var never changes its name: remove ops, attach new producers to outputs.

A name that is written twice becomes several versions, `w`, `w#1`, …. If a later version must live
in the storage of the earlier one (persistable state, a value that an op updates conditionally), it
`overwrites` it, and its producer depends on every other reader of the earlier version. That
dependency is derived from the vars, never stored.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import networkx as nx

from compiler.ir.opdef import OpDef, find
from compiler.ir.opdef.size_comparison import addressable
from compiler.ir.region import WHOLE
from compiler.ir.types import TOKEN, TensorType
from compiler.support.dataclass import dataclass

Position: TypeAlias = tuple[int, ...]
"""The position of an op in the schedule: `(7, 0)` was inserted right after `(7,)`, the eighth."""


class Var:
    """A value in a graph.

    `role` is "feed" (owned by the caller, read only), "param" (persistable state) or "temp".
    `overwrites` is the earlier version whose storage this one must share. `slot` is the number of
    the planned buffer (None: allocated by itself) and `region` the bytes of it.
    """

    __slots__ = ("name", "overwrites", "region", "role", "slot", "type", "version")

    def __init__(
        self,
        name: str,
        type: TensorType,
        role: str = "temp",
        version: int = 0,
        overwrites: Var | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.role = role
        self.version = version
        self.overwrites = overwrites
        self.slot: int | None = None
        self.region = WHOLE

    @property
    def label(self) -> str:
        """The display name: unique in the graph, and one line. `w`, `w#1`.

        Ambiguous names are quoted: `"w#1"` is version 0 of the name w#1.
        """
        name = self.name
        if not name.isprintable() or "#" in name or name.startswith('"'):
            name = json.dumps(name)
        return f"{name}#{self.version}" if self.version else name

    @property
    def memory(self) -> int | None:
        """The number of its slot, None without one."""
        return self.slot

    @property
    def storage(self) -> Var:
        """The first version that shares this storage; itself if it overwrites nothing."""
        var = self
        while var.overwrites is not None:
            var = var.overwrites
        return var

    def __repr__(self) -> str:
        return f"{self.label}: {self.type}"


class Op:
    """An op of a graph: slots of vars, attributes, labels, and the user's `file:line`.

    `body` is the graph of its sub-block; the last feeds of the body are the vars of slot
    `Captured`, in that order, and its first results those of `Written`. `kernel` is the fusion
    group of the op, and `part` its index in a multi-tensor launch, one part per tensor.
    """

    __slots__ = (
        "attrs", "body", "defn", "inputs", "kernel", "kind", "outputs", "part", "position",
        "source", "target",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        inputs: Mapping[str, Sequence[Var]],
        outputs: Mapping[str, Sequence[Var]],
        attrs: Mapping[str, Any],
        source: str,
        body: Graph | None,
        defn: OpDef | None = None,
    ) -> None:
        self.kind = kind
        self.inputs = {slot: list(vars) for slot, vars in inputs.items() if vars}
        self.outputs = {slot: list(vars) for slot, vars in outputs.items() if vars}
        self.attrs = dict(attrs)
        self.source = source
        self.body = body
        self.defn: OpDef = defn or find(kind)(attrs)
        self.kernel: int | None = None
        self.part: int | None = None
        self.target: str | None = None
        self.position: Position = ()

    def __getitem__(self, slot: str) -> Var:
        """Return the only var in an input or output slot; KeyError if the slot is empty."""
        vars = self.inputs.get(slot) or self.outputs[slot]
        return vars[0]

    def reads(self) -> list[Var]:
        """List every var it reads, slot by slot; a var in two slots is listed twice."""
        return _joined(self.inputs)

    def writes(self) -> list[Var]:
        """List every var it writes, slot by slot."""
        return _joined(self.outputs)

    def needs_data(self) -> list[Var]:
        """List the vars whose data it reads, without those of which it needs only the shape.

        A data-dependent shape is read from the array itself, except for device ops: there the sizes
        are known by name at run time.
        """
        shape_only, needed = self.defn.shape_only, list[Var]()
        for slot, vars in self.inputs.items():
            if slot not in shape_only:
                needed += vars
            elif self.target is None:
                needed += [var for var in vars if var.type.is_open]
        return needed

    def __repr__(self) -> str:
        outputs = ", ".join(var.label for var in self.writes())
        inputs = ", ".join(var.label for var in self.reads())
        return f"{outputs} = {self.kind}({inputs})"


def _joined(slots: Mapping[str, list[Var]]) -> list[Var]:
    """Return the vars in all slots: faster than a comprehension, of a call made for all ops."""
    joined: list[Var] = []
    for vars in slots.values():
        joined += vars
    return joined


def without_tokens(slots: Mapping[str, Sequence[Var]]) -> dict[str, list[Var]]:
    """Return the slots without token slots, which order collectives and have no data."""
    return {slot: list(vars) for slot, vars in slots.items() if vars[0].type != TOKEN}


@dataclass
class Changes:
    """What edits of a graph touched: `ops` that were added or rewired, `vars` that were declared or
    whose type, producer or readers changed, and whether the ops were put into another order.

    >>> g = Graph()
    >>> token = g.var("token", TOKEN)
    >>> list(g.changed.vars) == [token], g.changed.ops, g.changed.is_reordered
    (True, {}, False)
    """

    ops: dict[Op, None] = field(default_factory=dict["Op", None])
    vars: dict[Var, None] = field(default_factory=dict["Var", None])
    is_reordered: bool = False

    def add(self, op: Op) -> None:
        """Record an op that was added or rewired, and its vars."""
        self.ops[op] = None
        self.add_vars(op)

    def add_vars(self, op: Op) -> None:
        """Record the vars of an op."""
        for slots in (op.inputs, op.outputs):
            for vars in slots.values():
                self.vars |= dict.fromkeys(vars)


class Graph:
    """The ops and vars of one program (or of one sub-block)."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.nx: nx.DiGraph[Op | Var] = nx.DiGraph()
        self.results: list[Var] = []
        self._returned_as: dict[Var, str] = {}
        self._vars: dict[tuple[str, int], Var] = {}
        self._highest: dict[str, int] = {}
        self._ops: dict[Op, None] = {}
        self._counter = itertools.count()
        self._sorted = True
        self.edits = 0
        """The number of edits so far: an equal number means an unchanged graph."""
        self.changed = Changes()
        """What was edited since the caller last replaced it."""

    # ---- reading ----

    def ops(self) -> list[Op]:
        """Return a snapshot of the ops in order."""
        if not self._sorted:
            self._ops = dict.fromkeys(sorted(self._ops, key=lambda op: op.position))
            self._sorted = True
        return list(self._ops)

    def vars(self) -> list[Var]:
        """List the vars in order of creation."""
        return list(self._vars.values())

    def feeds(self) -> list[Var]:
        """List the vars that the caller passes in, in order of declaration."""
        return [var for var in self._vars.values() if var.role == "feed"]

    def params(self) -> list[Var]:
        """List the first versions of persistable state, in order of declaration."""
        return [v for v in self._vars.values() if v.role == "param" and v.overwrites is None]

    @property
    def fetches(self) -> list[str]:
        """The name of each result: its own, or that set by `return_as`."""
        return [self._returned_as.get(var, var.name) for var in self.results]

    def return_as(self, pairs: Iterable[tuple[Var, str]]) -> None:
        """Set the results of the graph and the names they are fetched by."""
        listed = list(pairs)
        self.results = [var for var, _ in listed]
        self._returned_as = dict(listed)

    def find(self, name: str, version: int = 0) -> Var | None:
        """Return the var with a name and version, or None."""
        return self._vars.get((name, version))

    def latest(self, name: str) -> Var | None:
        """Return the last version of a name, or None."""
        versions = range(self._highest.get(name, -1), -1, -1)
        return next((var for k in versions if (var := self.find(name, k)) is not None), None)

    def producer(self, var: Var) -> Op | None:
        """Return the op that writes a var; None for feeds and for initial state."""
        producer = next(iter(self.nx.predecessors(var)), None)
        return producer if isinstance(producer, Op) else None

    def readers(self, var: Var) -> list[Op]:
        """List the ops that read a var."""
        return [op for op in self.nx.successors(var) if isinstance(op, Op)]

    def overwriter(self, var: Var) -> Var | None:
        """Return the next version in a var's storage, or None."""
        after = self.find(var.name, var.version + 1)
        return after if after is not None and after.overwrites is var else None

    def predecessors(self, op: Op) -> list[Op]:
        """List the producers of its inputs, and producers and readers of what it overwrites."""
        before = dict.fromkeys(self.producer(var) for var in op.reads())
        for var in op.writes():
            if var.overwrites is not None:
                before |= dict.fromkeys([self.producer(var.overwrites)])
                before |= dict.fromkeys(self.readers(var.overwrites))
        return [other for other in before if other is not None and other is not op]

    def __len__(self) -> int:
        return len(self._ops)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops())

    def __contains__(self, node: Op | Var) -> bool:
        return node in self.nx

    # ---- editing ----

    def feed(self, name: str, type: TensorType) -> Var:
        """Declare a var that the caller passes in; ShapeError if no memory can hold it."""
        return self._add(Var(name, addressable(name, type), "feed"))

    def param(self, name: str, type: TensorType) -> Var:
        """Declare persistable state; ShapeError if no memory can hold it."""
        return self._add(Var(name, addressable(name, type), "param"))

    def var(self, name: str, type: TensorType, version: int = 0) -> Var:
        """Declare a temporary."""
        return self._add(Var(name, type, "temp", version))

    def another(self, name: str, type: TensorType) -> Var:
        """Declare a temporary for the first or the next write of a name."""
        last = self.latest(name)
        if last is None:
            return self.var(name, type)
        return self.next_version(last, type, same_storage=False)

    def next_version(self, var: Var, type: TensorType, *, same_storage: bool) -> Var:
        """Declare the next version of a name; with `same_storage` it overwrites the last."""
        last = self.latest(var.name) or var
        overwrites = last if same_storage else None
        role = "param" if last.role == "param" else "temp"
        return self._add(Var(var.name, type, role, self._highest[var.name] + 1, overwrites))

    def fresh(self, stem: str, type: TensorType) -> Var:
        """Declare a temporary with an unused name that begins with `stem`."""
        names = itertools.chain([stem], (f"{stem}.{k}" for k in itertools.count(1)))
        return self.var(next(n for n in names if (n, 0) not in self._vars), type)

    def op(
        self,
        kind: str,
        inputs: Mapping[str, Sequence[Var]],
        outputs: Mapping[str, Sequence[Var]],
        attrs: Mapping[str, Any] | None = None,
        source: str = "",
        body: Graph | None = None,
        last: bool = False,
        place: Position = (),
        defn: OpDef | None = None,
    ) -> Op:
        """Add an op right after the last of its dependencies, or at the end (`last`).

        With `place`, the position of a removed op, insert it there, after others inserted at it.
        `defn` is its definition with these attributes, if the caller has it. Raises ValueError if
        an output already has a producer.
        """
        op = Op(kind, inputs, outputs, attrs or {}, source, body, defn)
        for var in op.writes():
            if self.producer(var) is not None:
                raise ValueError(f"{var.label!r} has a producer: {self.producer(var)}")
        op.position = place or ((next(self._counter),) if last else self._behind(op))
        self._insert(op)
        return op

    def remove(self, *ops: Op) -> None:
        """Remove ops. Their vars remain, to be attached to new producers or swept."""
        for op in ops:
            self.nx.remove_node(op)
            del self._ops[op]
            self.changed.ops.pop(op, None)
            self.changed.add_vars(op)
            self.edits += 1

    def replace(
        self,
        op: Op,
        kind: str,
        inputs: Mapping[str, Sequence[Var]],
        outputs: Mapping[str, Sequence[Var]],
        attrs: Mapping[str, Any],
    ) -> Op:
        """Replace an op by another one at the same position, with the same source line.

        It must read nothing that is produced later. Raises ValueError if an output has another
        producer.
        """
        self.remove(op)
        new = self.op(kind, inputs, outputs, attrs, op.source, place=op.position)
        new.target = op.target
        return new

    def drop(self, var: Var) -> bool:
        """Remove a var if it is unused and neither fed nor returned; returns whether it was."""
        idle = not self.nx.degree[var] and self.overwriter(var) is None
        if not idle or var.role == "feed" or var in self.results:
            return False
        self.nx.remove_node(var)
        del self._vars[var.name, var.version]
        self.changed.vars.pop(var, None)
        self.edits += 1
        return True

    def rewire(self, op: Op, old: Var, new: Var) -> None:
        """Make an op read `new`, of the same type, wherever it reads `old`."""
        op.inputs = {
            slot: [new if var is old else var for var in vars] for slot, vars in op.inputs.items()
        }
        self.nx.remove_edge(old, op)
        self.nx.add_edge(new, op)
        self.changed.add(op)
        self.changed.vars[old] = None
        self.edits += 1

    def replace_uses(self, old: Var, new: Var) -> None:
        """Replace all uses of a var by another var of its type, which must be produced earlier."""
        for op in self.readers(old):
            self.rewire(op, old, new)

    def retype(self, var: Var, type: TensorType) -> None:
        """Declare another type of a var, such as one with sizes that were unknown."""
        var.type = type
        self.changed.ops |= {op: None for op in (self.producer(var), *self.readers(var)) if op}
        self._touch(var)
        self.edits += 1

    def sweep(self) -> list[Var]:
        """Remove all unused vars that are neither fed nor returned; returns them."""
        return [var for var in reversed(self.vars()) if self.drop(var)]

    def reorder(self, ops: Iterable[Op]) -> None:
        """Set the order of the ops: a permutation of all of them, else ValueError."""
        ordered = list(ops)
        if set(ordered) != set(self._ops) or len(ordered) != len(self._ops):
            raise ValueError("an order must have every op of the graph exactly once")
        self.changed.is_reordered |= ordered != self.ops()
        self._counter = itertools.count(len(ordered))
        for index, op in enumerate(ordered):
            op.position = (index,)
        self._ops, self._sorted = dict.fromkeys(ordered), True
        self.edits += 1

    def _add(self, var: Var) -> Var:
        if (var.name, var.version) in self._vars:
            raise ValueError(f"graph {self.name!r} has a var called {var.label!r} already")
        self._vars[var.name, var.version] = var
        self._highest[var.name] = max(var.version, self._highest.get(var.name, 0))
        self.nx.add_node(var)
        self._touch(var)
        self.edits += 1
        return var

    def _touch(self, var: Var) -> None:
        """Record a change of a var, with the versions before and after it in its storage."""
        near = (var, var.overwrites, self.overwriter(var))
        self.changed.vars.update((each, None) for each in near if each is not None)

    def _insert(self, op: Op) -> None:
        self._sorted = self._sorted and (
            not self._ops or next(reversed(self._ops)).position < op.position
        )
        self._ops[op] = None
        self.nx.add_node(op)
        self.nx.add_edges_from((var, op) for var in op.reads())
        self.nx.add_edges_from((op, var) for var in op.writes())
        self.changed.add(op)
        self.edits += 1

    def _behind(self, op: Op) -> Position:
        """Return a position after all dependencies of an op and before every later op."""
        after = max((before.position for before in self.predecessors(op)), default=(-1,))
        return (*after, next(self._counter))
