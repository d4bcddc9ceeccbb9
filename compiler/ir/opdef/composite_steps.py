"""The recorder with which a composite op defines its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.ir.opdef.definition import find
from compiler.ir.program import EMPTY, OpDesc
from compiler.ir.types import TensorType

_KEPT = ("op_role", "op_device", "op_namescope")
"""Attributes of a composite op that its steps inherit."""


class CompositeSteps:
    """A list of ops under construction, with generated names for intermediate values.

    `steps[slot]` is the name in an input slot of the composite op, `steps.type(slot)` its type.
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
        """Return whether an input slot is not empty."""
        return bool(self.names.get(slot))

    def all(self, slot: str) -> list[str]:
        """List the names in an input slot."""
        return list(self.names.get(slot, ()))

    def given(self, *slots: str) -> dict[str, list[str]]:
        """Return the names in those of the given input slots that are not empty."""
        return {slot: self.all(slot) for slot in slots if self.has(slot)}

    def type(self, slot: str, index: int = 0) -> TensorType:
        """Return the type of a value in an input slot."""
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
        """Append an op; returns output names by slot: `wanted` counts, one for required slots."""
        slots = find(kind).outputs().values()
        needed = {slot.name: 1 for slot in slots if not (slot.optional or slot.companion)}
        output_names = {
            slot: [f"{self.kind}@{len(self.ops)}.{slot}.{index}" for index in range(count)]
            for slot, count in {**needed, **wanted}.items()
        }
        input_names = {slot: [n] if isinstance(n, str) else list(n) for slot, n in inputs.items()}
        self.ops.append(OpDesc(kind, input_names, output_names, dict(attrs or {})))
        return output_names

    def write(self, slot: str, *names: str) -> None:
        """Set the values of an output slot of the composite op."""
        self.written[slot] = list(names)

    def finished(self, op: OpDesc) -> list[OpDesc]:
        """Return the steps for an op of a program, renamed so that they write its outputs."""
        wanted = [
            (step_name, name)
            for slot, names in op.outputs.items()
            for step_name, name in zip(self.written.get(slot, ()), names, strict=False)
            if name != EMPTY
        ]
        renamed = self._renamed(op, wanted)
        copies = [(step_name, name) for step_name, name in wanted if renamed.get(step_name) != name]
        attrs = {name: op.attrs[name] for name in _KEPT if name in op.attrs}
        steps = [_with_names(step, renamed, attrs, op.source) for step in self.ops]
        return steps + [
            OpDesc(
                "assign",
                {"X": [renamed.get(step_name, step_name)]},
                {"Out": [name]},
                attrs,
                op.source,
            )
            for step_name, name in copies
        ]

    def _renamed(self, op: OpDesc, wanted: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Map names of steps to output names of the op, unless the op reads the output name."""
        written = {name for step in self.ops for name in step.writes()}
        read = set(op.reads())
        return {a: b for a, b in reversed(wanted) if a in written and b not in read}


def _with_names(
    step: OpDesc, renamed: Mapping[str, str], attrs: Mapping[str, Any], source: str
) -> OpDesc:
    inputs, outputs = (
        {slot: [renamed.get(name, name) for name in names] for slot, names in side.items()}
        for side in (step.inputs, step.outputs)
    )
    return OpDesc(step.type, inputs, outputs, {**attrs, **step.attrs}, source)
