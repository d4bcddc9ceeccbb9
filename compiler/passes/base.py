"""The interface of passes: a name, a contract in facts, and `run(g, ctx)`, which edits the
graph.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import field
from enum import Enum
from typing import Any, ClassVar, Protocol, Self

from compiler.ir.attention import AttentionSupport
from compiler.ir.graph import Graph, Op
from compiler.ir.libraries import ChooseLibrary
from compiler.ir.types import Array
from compiler.options import Options
from compiler.support.dataclass import dataclass


class Fact(Enum):
    """A property of a graph that a pass establishes or requires, beyond type correctness."""

    GROUPED = "ops with one kernel label are neighbours and fuse"
    ORDERED = "the order of the ops was chosen for memory"
    STORED = "every temporary that stays in memory has a slot, and no two live ones share it"


class OpTarget(Protocol):
    """A code generator that ops are assigned to; see `compiler.codegen.target`."""

    name: str
    on_device: bool

    @property
    def multiplies_bytes(self) -> bool:
        """True if it has products of int8 whose sums are integers."""
        ...

    @property
    def attention(self) -> AttentionSupport:
        """The kernels of attention that it has."""
        ...

    @property
    def libraries(self) -> ChooseLibrary | None:
        """What chooses the products that a library of the device's vendor computes, if any."""
        ...

    def supports(self, op: Op) -> str:
        """Empty if it has code for an op; otherwise the reason it does not."""
        ...


@dataclass(frozen=True)
class Remark:
    """An op, and the reason why a pass was not applied to it, or was."""

    name: str
    op: str
    source: str
    reason: str
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.op}  {self.source}: {self.reason}".replace("  :", ":")


@dataclass
class Context:
    """State shared by the passes, and the missed optimisations; `applied` are those whose reasons
    users should see, too.

    `params` is passed in by the caller: constant arrays by name. None means that values may change
    between runs, so nothing may be computed from them at compile time. `typical` is the value
    assumed for unknown sizes when schedules are compared. `memory_budget` is that of `Options`.
    `milliseconds` is the time of each pass, including checks. `target` is the code generator that
    ops are assigned to, from `assign_targets` on: ops that later passes create are assigned too.
    """

    params: MutableMapping[str, Array] | None = None
    typical: int = 32
    memory_budget: int | str | None = None
    missed: list[Remark] = field(default_factory=list[Remark])
    applied: list[Remark] = field(default_factory=list[Remark])
    milliseconds: dict[str, float] = field(default_factory=dict[str, float])
    target: OpTarget | None = None

    def note_missed(self, name: str, op: Op, reason: str) -> None:
        """Record that pass `name` was not applied to an op, with a reason that users understand."""
        self.missed.append(_remark(name, op, reason))

    def note_applied(self, name: str, op: Op, reason: str) -> None:
        """Record that pass `name` was applied to an op for a reason that users should see."""
        self.applied.append(_remark(name, op, reason))


def _remark(name: str, op: Op, reason: str) -> Remark:
    outputs = tuple([var.label for var in op.writes()])
    return Remark(name, repr(op), op.source, reason, outputs)


class Pass:
    """A rewrite or analysis of a graph. Subclasses define `name`, the facts of the contract, and
    `run`.

    Facts in `requires` hold before `run`, those in `establishes` after it; those in `invalidates`
    may no longer hold (their labels are removed before `run`). `preserves` is False for passes that
    change the numbers of a process. `run` leaves the graph valid and reports ops that it does not
    change, with a reason, by `ctx.note_missed`.

    A `required` pass is part of compiling for a target: options do not disable it.
    """

    name: ClassVar[str] = ""
    requires: ClassVar[frozenset[Fact]] = frozenset()
    establishes: ClassVar[frozenset[Fact]] = frozenset()
    invalidates: ClassVar[frozenset[Fact]] = frozenset()
    required: ClassVar[bool] = False
    preserves: bool = True

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Return the pass as configured by the options for a target; None if it does not run.

        Without `target`, all ops run in NumPy. By default the pass has no arguments, and runs
        unless `options.disable` has its name.
        """
        return None if cls.name in options.disable else cls()

    def run(self, g: Graph, ctx: Context) -> None:
        """Edit the graph in place."""
        raise NotImplementedError


def role_of(op: Op) -> dict[str, Any]:
    """Return the `op_role` attribute of an op, which marks backward and optimizer ops."""
    return {name: value for name, value in op.attrs.items() if name == "op_role"}
