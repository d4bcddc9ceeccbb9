"""The dataflow graph: a networkx DiGraph of ops and vars in which every var has one producer.

This is the only code that edits the DiGraph. Passes read with networkx (`nx.descendants(g.nx, op)`)
and change through `Graph`, in place. A rewrite changes ops; a decision is a label: `op.kernel`
(fused kernel), `op.target` (code generator), `var.slot` (memory) and the positions of ops, which
are their order. Vars keep their names for life: remove ops, give their outputs new producers.

A name that is written twice becomes several vars, `w`, `w#1`, …, told apart by `version`. Where
the later one must live in the storage of the earlier one (persistable state, a value that an op
updates only on a condition), it `overwrites` it, and its producer waits for every other reader of
the earlier one. That order is derived from the vars, never stored.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import networkx as nx

from compiler.ir.opdef import OpDef, Slot, find
from compiler.ir.region import WHOLE
from compiler.ir.types import TOKEN, TensorType

Position: TypeAlias = tuple[int, ...]
"""Where an op stands: `(7,)` is the eighth op; `(7, 0)` was inserted just behind it."""


class Var:
    """A value of a graph.

    `role` is "feed" (the caller's, read only), "param" (persistable state that outlives a run) or
    "temp". `overwrites` is the earlier version in whose storage this one must live. `slot` labels
    the memory it was given, and `region` which bytes of it; None means it is allocated by itself.
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
        """Its name in messages and comments: unique in the graph, and one line. `w`, `w#1`.

        A name with what could be taken for something else is quoted: `"w#1"` is the first var of
        the name w#1.
        """
        name = self.name
        if not name.isprintable() or "#" in name or name.startswith('"'):
            name = json.dumps(name)
        return f"{name}#{self.version}" if self.version else name

    @property
    def memory(self) -> int | None:
        """Its slot."""
        return self.slot

    @property
    def storage(self) -> Var:
        """The first version of the storage it lives in; itself where it overwrites nothing."""
        var = self
        while var.overwrites is not None:
            var = var.overwrites
        return var

    def __repr__(self) -> str:
        return f"{self.label}: {self.type}"


class Op:
    """An op of a graph: slots of vars, attributes, labels, and the user's `file:line`.

    `body` is the graph of its sub-block; its last feeds are the vars of slot `Captured`, in that
    order, and its first results those of `Written`. `kernel` labels the fused kernel it is in, and
    `part` its place among several that are alike and run as one launch, each on tensors of its own.
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
    ) -> None:
        self.kind = kind
        self.inputs = {slot: list(vars) for slot, vars in inputs.items() if vars}
        self.outputs = {slot: list(vars) for slot, vars in outputs.items() if vars}
        self.attrs = dict(attrs)
        self.source = source
        self.body = body
        self.defn: OpDef = find(kind)(attrs)
        self.kernel: int | None = None
        self.part: int | None = None
        self.target: str | None = None
        self.position: Position = ()

    def __getitem__(self, slot: str) -> Var:
        """The only var in an input or output slot; KeyError where it has none."""
        vars = self.inputs.get(slot) or self.outputs[slot]
        return vars[0]

    def reads(self) -> list[Var]:
        """Every var it reads, slot by slot; one that stands in two slots comes twice."""
        return [var for vars in self.inputs.values() for var in vars]

    def writes(self) -> list[Var]:
        """Every var it writes, slot by slot."""
        return [var for vars in self.outputs.values() for var in vars]

    def needs_data(self) -> list[Var]:
        """The vars whose data it reads, without those of which it only asks the shape.

        A shape that only data decides is asked of the data, but for ops of a device: the step knows
        its sizes by name.
        """
        slots, asks = self.defn.slots, self.target is None
        return [
            var
            for slot, vars in self.inputs.items()
            for var in vars
            if (asks and var.type.is_open) or not slots.get(slot, Slot()).shape_only
        ]

    def __repr__(self) -> str:
        outputs = ", ".join(var.label for var in self.writes())
        inputs = ", ".join(var.label for var in self.reads())
        return f"{outputs} = {self.kind}({inputs})"


def without_tokens(slots: Mapping[str, Sequence[Var]]) -> dict[str, list[Var]]:
    """Slots without those of tokens, which order collectives and have no data."""
    return {slot: list(vars) for slot, vars in slots.items() if vars[0].type != TOKEN}


class Graph:
    """Ops and vars of one program (or of one sub-block)."""

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
        """How often it was edited: what has the same number has not changed."""
        self.changed: dict[Op, None] = {}
        """Ops that were added, or read something else, since this was last emptied."""

    # ---- reading ----

    def ops(self) -> list[Op]:
        """A snapshot of the ops in order."""
        if not self._sorted:
            self._ops = dict.fromkeys(sorted(self._ops, key=lambda op: op.position))
            self._sorted = True
        return list(self._ops)

    def vars(self) -> list[Var]:
        """Every var, in order of creation."""
        return list(self._vars.values())

    def feeds(self) -> list[Var]:
        """The vars a caller gives, in order of declaration."""
        return [var for var in self._vars.values() if var.role == "feed"]

    def params(self) -> list[Var]:
        """The first versions of persistable state, in order of declaration."""
        mine = self._vars.values()
        return [var for var in mine if var.role == "param" and var.overwrites is None]

    @property
    def fetches(self) -> list[str]:
        """What each result is called where it is returned: its name, unless passes say otherwise.

        A result that was copied from a device keeps the name of what it is a copy of.
        """
        return [self._returned_as.get(var, var.name) for var in self.results]

    def return_as(self, pairs: Iterable[tuple[Var, str]]) -> None:
        """Return vars under these names."""
        listed = list(pairs)
        self.results = [var for var, _ in listed]
        self._returned_as = dict(listed)

    def find(self, name: str, version: int = 0) -> Var | None:
        """The var of a name and version; None where there is none."""
        return self._vars.get((name, version))

    def latest(self, name: str) -> Var | None:
        """The last version of a name; None where there is none."""
        versions = range(self._highest.get(name, -1), -1, -1)
        return next((var for k in versions if (var := self.find(name, k)) is not None), None)

    def producer(self, var: Var) -> Op | None:
        """The op that writes a var; None for feeds and for state a run begins with."""
        found = next(iter(self.nx.predecessors(var)), None)
        return found if isinstance(found, Op) else None

    def readers(self, var: Var) -> list[Op]:
        """The ops that read a var."""
        return [op for op in self.nx.successors(var) if isinstance(op, Op)]

    def overwriter(self, var: Var) -> Var | None:
        """The next version in a var's storage; None where there is none."""
        after = self.find(var.name, var.version + 1)
        return after if after is not None and after.overwrites is var else None

    def predecessors(self, op: Op) -> list[Op]:
        """The ops that must run before an op: producers of what it reads and, for what it
        overwrites, the producer and every other reader of the earlier version.
        """
        before = dict.fromkeys(self.producer(var) for var in op.reads())
        for var in op.writes():
            if var.overwrites is not None:
                before |= dict.fromkeys([self.producer(var.overwrites)])
                before |= dict.fromkeys(self.readers(var.overwrites))
        return [found for found in before if found is not None and found is not op]

    def __len__(self) -> int:
        return len(self._ops)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops())

    def __contains__(self, node: Op | Var) -> bool:
        return node in self.nx

    # ---- editing ----

    def feed(self, name: str, type: TensorType) -> Var:
        """Declare a var the caller gives."""
        return self._add(Var(name, type, "feed"))

    def param(self, name: str, type: TensorType) -> Var:
        """Declare persistable state."""
        return self._add(Var(name, type, "param"))

    def var(self, name: str, type: TensorType, version: int = 0) -> Var:
        """Declare a temporary."""
        return self._add(Var(name, type, "temp", version))

    def another(self, name: str, type: TensorType) -> Var:
        """Declare the temporary for another write of a name, or for the first one."""
        last = self.latest(name)
        if last is None:
            return self.var(name, type)
        return self.next_version(last, type, same_storage=False)

    def next_version(self, var: Var, type: TensorType, *, same_storage: bool) -> Var:
        """Declare the var for another write of a name; `same_storage` makes it overwrite."""
        last = self.latest(var.name) or var
        overwrites = last if same_storage else None
        role = "param" if last.role == "param" else "temp"
        return self._add(Var(var.name, type, role, self._highest[var.name] + 1, overwrites))

    def fresh(self, stem: str, type: TensorType) -> Var:
        """Declare a temporary whose name begins with `stem` and is not taken."""
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
    ) -> Op:
        """Add an op just behind the last producer of what it reads, or as the last of all.

        Or at a place, that of an op which was taken out, behind others that were put there.
        Raises ValueError where an output has a producer already.
        """
        op = Op(kind, inputs, outputs, attrs or {}, source, body)
        for var in op.writes():
            if self.producer(var) is not None:
                raise ValueError(f"{var.label!r} has a producer: {self.producer(var)}")
        op.position = place or ((next(self._counter),) if last else self._behind(op))
        self._insert(op)
        return op

    def remove(self, *ops: Op) -> None:
        """Take ops out. Their vars stay, to be given new producers or swept."""
        for op in ops:
            self.nx.remove_node(op)
            del self._ops[op]
            self.edits += 1

    def replace(
        self,
        op: Op,
        kind: str,
        inputs: Mapping[str, Sequence[Var]],
        outputs: Mapping[str, Sequence[Var]],
        attrs: Mapping[str, Any],
    ) -> Op:
        """Put another op in the place of one, with its source line.

        It must read nothing that is made later. Raises ValueError where an output has another
        producer.
        """
        self.remove(op)
        new = self.op(kind, inputs, outputs, attrs, op.source, place=op.position)
        new.target = op.target
        return new

    def drop(self, var: Var) -> bool:
        """Drop a var that no op touches and nobody asks for, unless it is fed; True if it was."""
        idle = not self.nx.degree[var] and self.overwriter(var) is None
        if not idle or var.role == "feed" or var in self.results:
            return False
        self.nx.remove_node(var)
        del self._vars[var.name, var.version]
        self.edits += 1
        return True

    def rewire(self, op: Op, old: Var, new: Var) -> None:
        """Let an op read `new`, of the same type, wherever it reads `old`."""
        op.inputs = {
            slot: [new if var is old else var for var in vars] for slot, vars in op.inputs.items()
        }
        self.nx.remove_edge(old, op)
        self.nx.add_edge(new, op)
        self.changed[op] = None
        self.edits += 1

    def replace_uses(self, old: Var, new: Var) -> None:
        """Let all that read a var read another of its type, which is made before it."""
        for op in self.readers(old):
            self.rewire(op, old, new)

    def sweep(self) -> list[Var]:
        """Drop all vars that no op touches and nobody asks for; returns them."""
        return [var for var in reversed(self.vars()) if self.drop(var)]

    def reorder(self, ops: Iterable[Op]) -> None:
        """Make this the order of the ops: all of them, each once."""
        ordered = list(ops)
        if set(ordered) != set(self._ops) or len(ordered) != len(self._ops):
            raise ValueError("an order must have every op of the graph exactly once")
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
        self.edits += 1
        return var

    def _insert(self, op: Op) -> None:
        self._sorted = self._sorted and (
            not self._ops or next(reversed(self._ops)).position < op.position
        )
        self._ops[op] = None
        self.nx.add_node(op)
        self.nx.add_edges_from((var, op) for var in op.reads())
        self.nx.add_edges_from((op, var) for var in op.writes())
        self.changed[op] = None
        self.edits += 1

    def _behind(self, op: Op) -> Position:
        """A position after everything an op must wait for and before all that stands later."""
        after = max((before.position for before in self.predecessors(op)), default=(-1,))
        return (*after, next(self._counter))
