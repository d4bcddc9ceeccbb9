"""What a pass is: a name, a contract in facts, and `run(g, ctx)` that edits the graph in place."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from compiler.ir.graph import Graph, Op
from compiler.ir.types import Array


class Fact(Enum):
    """What may be known of a graph besides that its types hold."""

    GROUPED = "ops with one kernel label are neighbours and fuse"
    ORDERED = "the order of the ops was chosen for memory"
    STORED = "every temporary that stays in memory has a slot, and no two live ones share it"


@dataclass(frozen=True)
class MissedOptimization:
    """An op a pass left as it was, and why."""

    name: str
    op: str
    source: str
    reason: str
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.op}  {self.source}: {self.reason}".replace("  :", ":")


@dataclass
class Context:
    """What passes share: state they may read and extend, and what they declined to do.

    `params` is lent by the caller: arrays by name, as they will be when the module runs. None means
    that values may change between runs, so nothing may be computed from them now. `typical` is
    the number to think of for an unknown size when two orders are compared. `memory_budget` is what
    `Options` has under that name. `milliseconds` are those each pass took, checks included.
    """

    params: MutableMapping[str, Array] | None = None
    typical: int = 32
    memory_budget: int | str | None = None
    missed: list[MissedOptimization] = field(default_factory=list[MissedOptimization])
    milliseconds: dict[str, float] = field(default_factory=dict[str, float])

    def note_missed(self, name: str, op: Op, reason: str) -> None:
        """Note that pass `name` declined an op, in words a user understands."""
        outputs = tuple([var.label for var in op.writes()])
        self.missed.append(MissedOptimization(name, repr(op), op.source, reason, outputs))


class Pass:
    """A rewrite or a decision. Subclasses give `name`, the facts of their contract, and `run`.

    Facts in `requires` hold before `run`, those in `establishes` after it; those in `invalidates`
    may no longer hold (their labels are removed before `run`). `preserves` is False for passes that
    change what one process computes. `run` leaves the graph valid and reports an op that it leaves
    alone with a reason, by `ctx.note_missed`.

    A pass of this folder that the list of `pipeline` lacks names the pass it runs just `before` or
    just `after`.
    """

    name: ClassVar[str] = ""
    requires: ClassVar[frozenset[Fact]] = frozenset()
    establishes: ClassVar[frozenset[Fact]] = frozenset()
    invalidates: ClassVar[frozenset[Fact]] = frozenset()
    preserves: ClassVar[bool] = True
    before: ClassVar[str] = ""
    after: ClassVar[str] = ""

    def run(self, g: Graph, ctx: Context) -> None:
        """Edit the graph in place."""
        raise NotImplementedError


def role_of(op: Op) -> dict[str, Any]:
    """The part of an op's attributes that says whether it belongs to the backward pass."""
    return {name: value for name, value in op.attrs.items() if name == "op_role"}
