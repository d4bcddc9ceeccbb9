"""The steps of a composite op, as its class writes them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.ir.opdef.definition import find
from compiler.ir.program import EMPTY, OpDesc
from compiler.ir.types import TensorType

_KEPT = ("op_role", "op_device", "op_namescope")
"""Attributes of a composite that its steps have as well."""


class Steps:
    """Ops in order, with names for the values between them.

    `steps[slot]` is the name in an input slot of the composite, `steps.type(slot)` its type.
    """

    def __init__(
        self, kind: str, names: Mapping[str, Sequence[str]], types: Mapping[str, Sequence[Any]]
    ) -> None:
        self.kind = kind
        self.names = names
        self.types = types
        self.ops: list[OpDesc] = []
        self.written: dict[str, list[str]] = {}

    def __getitem__(self, slot: str) -> str:
        return self.names[slot][0]

    def has(self, slot: str) -> bool:
        """True where an input slot is not empty."""
        return bool(self.names.get(slot))

    def all(self, slot: str) -> list[str]:
        """The names in an input slot."""
        return list(self.names.get(slot, ()))

    def given(self, *slots: str) -> dict[str, list[str]]:
        """The names in those of some input slots that are not empty."""
        return {slot: self.all(slot) for slot in slots if self.has(slot)}

    def type(self, slot: str, index: int = 0) -> TensorType:
        """The type of what an input slot holds."""
        return self.types[slot][index]

    def __call__(
        self, kind: str, attrs: Mapping[str, Any] | None = None, /, **inputs: str | Sequence[str]
    ) -> str:
        """Append an op; returns the name of its first output."""
        first = next(iter(find(kind).outputs()))
        return self.outputs(kind, {first: 1}, attrs, **inputs)[first][0]

    def outputs(
        self,
        kind: str,
        wanted: Mapping[str, int],
        attrs: Mapping[str, Any] | None = None,
        /,
        **inputs: str | Sequence[str],
    ) -> dict[str, list[str]]:
        """Append an op; returns names by output slot as wanted, and one where needed."""
        slots = find(kind).outputs().values()
        needed = {slot.name: 1 for slot in slots if not (slot.optional or slot.companion)}
        made = {
            slot: [f"{self.kind}@{len(self.ops)}.{slot}.{index}" for index in range(count)]
            for slot, count in {**needed, **wanted}.items()
        }
        given = {slot: [n] if isinstance(n, str) else list(n) for slot, n in inputs.items()}
        self.ops.append(OpDesc(kind, given, made, dict(attrs or {})))
        return made

    def write(self, slot: str, *names: str) -> None:
        """Say what an output slot of the composite holds."""
        self.written[slot] = list(names)

    def finished(self, op: OpDesc) -> list[OpDesc]:
        """The steps of an op of a program, which write the names that it does."""
        wanted = [
            (made, name)
            for slot, names in op.outputs.items()
            for made, name in zip(self.written.get(slot, ()), names, strict=False)
            if name != EMPTY
        ]
        renamed = self._renamed(op, wanted)
        copies = [(made, name) for made, name in wanted if renamed.get(made) != name]
        kept = {name: op.attrs[name] for name in _KEPT if name in op.attrs}
        steps = [_with_names(step, renamed, kept, op.source) for step in self.ops]
        return steps + [
            OpDesc("assign", {"X": [renamed.get(made, made)]}, {"Out": [name]}, kept, op.source)
            for made, name in copies
        ]

    def _renamed(self, op: OpDesc, wanted: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Names of steps that can be those of the op: nothing that it reads is overwritten."""
        made = {name for step in self.ops for name in step.writes()}
        read = set(op.reads())
        return {a: b for a, b in reversed(wanted) if a in made and b not in read}


def _with_names(
    step: OpDesc, renamed: Mapping[str, str], attrs: Mapping[str, Any], source: str
) -> OpDesc:
    inputs, outputs = (
        {slot: [renamed.get(name, name) for name in names] for slot, names in side.items()}
        for side in (step.inputs, step.outputs)
    )
    return OpDesc(step.type, inputs, outputs, {**attrs, **step.attrs}, source)
