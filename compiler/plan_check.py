"""Verifier of plans: every value that a step reads is the last one written to its memory.

Passes decide which values share memory, and `freeze` records it; an error in either would give
wrong numbers silently. So each plan is simulated step by step before code is generated. That two
buffers live at once do not overlap is checked by `compiler.pack.check`, when sizes are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from compiler.errors import PlanError
from compiler.ir.analysis.memory_writes import Aliases
from compiler.ir.analysis.region_index import RegionIndex
from compiler.ir.opdef import Pointwise
from compiler.ir.region import are_disjoint
from compiler.plan import Plan, PlannedOp, PlannedValue, Step, Storage, StorageKind
from compiler.support.dataclass import dataclass

_Memory = tuple[StorageKind, "str | int"]

KEPT = frozenset({StorageKind.BUFFER, StorageKind.PARAM, StorageKind.LOCAL})
"""Kinds of storage whose memory a later value may reuse."""


def check_plan(plan: Plan) -> None:
    """Raise PlanError if a value is overwritten before it is read, or stored in invalid memory.

    Feeds and results share memory with nothing else; a buffer is used only in its live range;
    memory is reused only at the last use, and only if the op may overwrite its input. The error
    names both values and the steps they are needed in.
    """
    for value in plan.feeds:
        if value.place is not StorageKind.FEED:
            raise PlanError(
                f"{value.label!r} is a feed, so its place cannot be {value.place.value!r}"
            )
    walk = _Simulation(plan)
    for step in plan.steps:
        _expect_live(plan, step)
        _expect_in_place(step)
        for op in step.ops:
            walk.run(step, op)
    walk.finish()


@dataclass
class _Simulation:
    """State of the simulation: the values in each memory, and the overwritten and deleted ones.

    `holders` has the labels of the values that each memory holds, `values` the values of labels.
    """

    plan: Plan
    holders: dict[_Memory, RegionIndex[str]] = field(
        default_factory=lambda: dict[_Memory, RegionIndex[str]]()
    )
    values: dict[str, PlannedValue] = field(default_factory=dict[str, PlannedValue])
    lost: dict[str, tuple[PlannedValue, int]] = field(
        default_factory=dict[str, tuple[PlannedValue, int]]
    )
    deleted: dict[str, int] = field(default_factory=dict[str, int])

    def run(self, step: Step, op: PlannedOp) -> None:
        """Check that an op's inputs are valid, and record its outputs."""
        if op.kind == "delete_var":
            for values in op.inputs.values():
                self.deleted |= {value.label: step.index for value in values}
            return
        for value in _data_read(op):
            self._expect_valid(value, step.index, op)
        outputs = [value for values in op.outputs.values() for value in values]
        aliases = Aliases(op)
        for value in outputs:
            self._write(op, aliases, value, step.index)
            holders = self.holders.setdefault(value.storage[:2], RegionIndex())
            holders.add(value.label, value.type, value.region)
            self.values[value.label] = value
            self.lost.pop(value.label, None)

    def _write(
        self, op: PlannedOp, aliases: Aliases[PlannedValue], value: PlannedValue, index: int
    ) -> None:
        """Mark the values in the bytes that an op overwrites as lost."""
        regions = aliases.written(value) if not op.body else [value.region]
        if not regions:
            return
        same = {linked.label for linked in aliases.linked(value)} | {value.label}
        holders = self.holders.get(value.storage[:2])
        if holders is None:
            return
        near = {label for region in regions for label in holders.near(value.type, region)}
        for other in (self.values[label] for label in near - same):
            apart = (are_disjoint(value.type, r, other.type, other.region) for r in regions)
            if not all(apart):
                holders.discard(other.label)
                self.lost[other.label] = (value, index)

    def finish(self) -> None:
        """Check that results are valid after the last step and share no memory."""
        returned: dict[Storage, PlannedValue] = {}
        for value in self.plan.results:
            self._expect_valid(value, len(self.plan.steps), None)
            other = returned.setdefault(value.storage, value)
            if other.label != value.label and value.place is not StorageKind.INNER:
                raise PlanError(
                    f"{other.label!r} and {value.label!r} are results that share memory"
                )

    def _expect_valid(self, value: PlannedValue, index: int, op: PlannedOp | None) -> None:
        if value.place not in KEPT:
            return
        source, text = (op.source, op.text) if op is not None else ("", "")
        reader = f"step {index}" if op is not None else "the caller"
        why = ""
        if value.label in self.deleted:
            why = f"it was deleted in step {self.deleted[value.label]}"
        elif value.label in self.lost:
            holder, since = self.lost[value.label]
            why = f"{holder.label!r} occupies its memory since step {since}"
            why += f"; {self._life(value)}, {self._life(holder)}"
        elif value.label not in self.holders.get(value.storage[:2], ()):
            why = "" if value.place is StorageKind.PARAM else "nothing has written it"
        if why:
            raise PlanError(f"{reader} reads {value.label!r}, but {why}", op=text, source=source)

    def _life(self, value: PlannedValue) -> str:
        """Describe the steps in which a value is written or read."""
        used = [
            step.index
            for step in self.plan.steps
            if any(value.label == operand.label for op in step.ops for operand in op.values)
        ]
        last = len(self.plan.steps) if value in self.plan.results else used[-1]
        return f"{value.label!r} is needed in steps {used[0]} to {last}"


def _data_read(op: PlannedOp) -> Iterator[PlannedValue]:
    """Yield the values whose data an op reads, not only their shapes."""
    for slot, values in op.inputs.items():
        if not op.defn.slots[slot].shape_only:
            yield from values


def _expect_live(plan: Plan, step: Step) -> None:
    """Check that every buffer a step uses, including its bodies, is live in it."""
    for op in _ops(step):
        used = _used(op)
        for value in (value for value in op.values if value.place is StorageKind.BUFFER):
            buffer = plan.buffers[int(value.home)]
            if id(value) in used and not buffer.start <= step.index < buffer.stop:
                live = f"in steps {buffer.start} to {buffer.stop - 1}"
                raise PlanError(
                    f"step {step.index} uses {value.label!r}, whose buffer is live {live}",
                    op=op.text,
                    source=op.source,
                )


def _ops(step: Step) -> Iterator[PlannedOp]:
    """Yield the ops of a step and of the bodies they own."""
    for op in step.ops:
        yield op
        for inner in op.body:
            yield from _ops(inner)


def _used(op: PlannedOp) -> set[int]:
    """The values whose data an op reads or writes, by `id`."""
    if op.kind == "delete_var":
        return set()
    written = (value for values in op.outputs.values() for value in values)
    return {id(value) for value in (*_data_read(op), *written)}


def _expect_in_place(step: Step) -> None:
    """Check that an output over an input of the same step is declared in place or elementwise."""
    for index, op in enumerate(step.ops):
        if op.body or op.kind == "delete_var":
            continue
        aliases = Aliases(op)
        for slot, values in op.outputs.items():
            allowed = op.defn.overwritable_inputs(slot)
            declared = tuple(v for input_slot in allowed for v in op.inputs.get(input_slot, ()))
            buffered = (value for value in values if value.place is StorageKind.BUFFER)
            for value in (value for value in buffered if aliases.written(value)):
                _expect_may_write(step, index, value, declared, aliases.linked(value))


def _expect_may_write(
    step: Step,
    index: int,
    new: PlannedValue,
    declared: tuple[PlannedValue, ...],
    linked: Sequence[PlannedValue],
) -> None:
    """Raise PlanError if `new` overwrites an input that the kernel may still read.

    `declared` are inputs that the op may overwrite, `linked` those that alias `new`.
    """
    op = step.ops[index]
    for number, other in enumerate(step.ops):
        for old in (v for v in _data_read(other) if v.storage == new.storage and v is not new):
            made_here = any(
                old is output for o in step.ops for vs in o.outputs.values() for output in vs
            )
            by_element = isinstance(other.defn, Pointwise) and isinstance(op.defn, Pointwise)
            at_last = number <= index and by_element and old.type == new.type
            at_last = at_last and other.part == op.part
            is_linked = any(old is value for value in linked)
            if made_here or at_last or (number == index and (old in declared or is_linked)):
                continue
            raise PlanError(
                f"step {step.index} writes {new.label!r} over {old.label!r}, which it still reads",
                op=op.text,
                source=op.source,
            )
