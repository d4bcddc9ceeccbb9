"""Placement: assigns each op to the device or the host, and inserts the copies between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from compiler.ir.analysis.placement import TO_DEVICE, TO_HOST, device_vars, is_there
from compiler.ir.graph import Graph, Op, Var
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass


class AssignTargets(Pass):
    """y = f(x)  =  y = f(x) @native or @triton; x' = to_host(x); y' = f(x'); y = to_device(y').

    Ops that the target has no code for run in NumPy (host fallback) and are reported. If the target
    is a device, each value is copied once, after its producer. State keeps its placement: a host op
    that updates device state writes a temporary, which is copied to the device.
    """

    name = "assign_targets"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})
    required = True

    def __init__(self, target: OpTarget) -> None:
        self._target = target

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """Assign ops to the target, if there is one."""
        return None if target is None else cls(target)

    def run(self, g: Graph, ctx: Context) -> None:
        """Assign targets, then give every op its operands where it runs."""
        for op in g.ops():
            why = self._target.supports(op)
            op.target = None if why else self._target.name
            if why:
                ctx.note_missed(self.name, op, why)
        if self._target.on_device:
            _CopyInserter(g).insert()
        ctx.target = self._target


class _CopyInserter:
    """Inserts copies between host and device, one per value and direction.

    `instead` maps vars to their replacements: a value that a host op overwrites is on the host,
    although its earlier version was on the device.
    """

    def __init__(self, g: Graph) -> None:
        self.g = g
        self.on_device = device_vars(g)
        self.copies: dict[Var, Var] = {}
        self.instead: dict[Var, Var] = {}

    def insert(self) -> None:
        """Visit the ops in order; copy the graph's results to the host."""
        self.g.reorder(self.g.ops())  # so that positions are unique
        for op in self.g.ops():
            self._move_operands(op)
        results = [self.instead.get(var, var) for var in self.g.results]
        copies = [self._copy(v) if v in self.on_device else v for v in results]
        self.g.return_as(zip(copies, self.g.fetches, strict=True))

    def _move_operands(self, op: Op) -> None:
        """Replace an op by one whose operands are all where it runs, if any are not."""
        here = dict.fromkeys(v for s, vs in op.outputs.items() if not is_there(op, s) for v in vs)
        back = {v: self._host_output(op, v) for v in here if self._writes_device(v)}
        # What a loop overwrites is what its next iteration reads.
        over = ((var.overwrites, host.overwrites) for var, host in back.items())
        others = {var: host for var, host in over if var is not None and host is not None}
        inputs = {slot: self._operands_of_slot(op, slot, others) for slot in op.inputs}
        if back or inputs != op.inputs:
            self._recreate(op, inputs, back)

    def _operands_of_slot(self, op: Op, slot: str, others: Mapping[Var, Var]) -> list[Var]:
        """Return the current operands of an input slot, copied to where the op reads them.

        Those in `others` are there already.
        """
        needed, on_device = {*op.needs_data()} - {*others}, is_there(op, slot)
        pairs = [(var, others.get(var) or self.instead.get(var, var)) for var in op.inputs[slot]]
        return [
            self._copy(now) if var in needed and (now in self.on_device) is not on_device else now
            for var, now in pairs
        ]

    def _writes_device(self, var: Var) -> bool:
        """Whether a host op's output is on the device, or overwrites a value that came from it."""
        over = var.overwrites
        return var in self.on_device or over in self.on_device or over in self.instead

    def _recreate(self, op: Op, inputs: Mapping[str, list[Var]], back: Mapping[Var, Var]) -> None:
        """Recreate the op with other operands; copy updated state to the device."""
        self.g.remove(op)
        outputs = _with(op.outputs, back)
        new_op = self.g.op(
            op.kind, inputs, outputs, op.attrs, op.source, op.body, place=op.position
        )
        new_op.target = op.target
        for var, host in back.items():
            if var in self.on_device:
                self.g.op(TO_DEVICE, {"X": [host]}, {"Out": [var]}, {}, op.source)
            else:
                self.instead[var] = host

    def _host_output(self, op: Op, var: Var) -> Var:
        """Return the host var that an op writes instead of a device var.

        An op that may leave it unchanged, such as a branch, overwrites a copy of its earlier
        version.
        """
        if op.body is None or var.overwrites is None:
            return self.g.fresh(f"{var.label}@host", var.type)
        before = self.instead.get(var.overwrites)
        if before is None:
            before = self.g.fresh(f"{var.overwrites.label}@host", var.type)
            self.g.op(TO_HOST, {"X": [var.overwrites]}, {"Out": [before]}, {}, op.source)
        return self.g.next_version(before, var.type, same_storage=True)

    def _copy(self, var: Var) -> Var:
        """Return the copy of a value in the other memory, inserted once."""
        if var not in self.copies:
            on_device = var in self.on_device
            copy = self.g.fresh(f"{var.label}@{'host' if on_device else 'device'}", var.type)
            producer = self.g.producer(var)
            source = producer.source if producer is not None else ""
            kind = TO_HOST if on_device else TO_DEVICE
            self.g.op(kind, {"X": [var]}, {"Out": [copy]}, {}, source)
            self.copies[var] = copy
        return self.copies[var]


def _with(slots: Mapping[str, Sequence[Var]], others: Mapping[Var, Var]) -> dict[str, list[Var]]:
    return {slot: [others.get(var, var) for var in vars] for slot, vars in slots.items()}
