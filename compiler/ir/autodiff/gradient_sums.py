"""Accumulation of gradients: which op writes which partial gradient, and where they are summed.

A gradient with several contributions is summed right before the first op that reads it, or at the
end; the parts are named `x@GRAD@RENAME@block0@k`. The gradient of a tensor array is an accumulator:
the gradient of a write takes an element out, the gradient of a read adds one. A part of it may
therefore be used in between, and is renamed there as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from compiler.ir.autodiff.loop_counters import renamed
from compiler.ir.program import Block, OpDesc, OpRole, VarKind
from compiler.support.dataclass import dataclass

PART = "@RENAME@"
"""The infix of names of partial gradients."""


@dataclass(frozen=True)
class _GradientWrite:
    """The location of a write of a (partial) gradient: op, output slot, index in the slot."""

    at: int
    slot: str
    index: int


class PartialGradients:
    """The gradient ops of a block in order, and which of them write which partial gradient.

    `given` are the gradients that come from outside, complete or as one more part.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.ops: list[OpDesc] = []
        self.names: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.parts: dict[str, list[_GradientWrite]] = {}
        self.given: set[str] = set()
        self.counts: Counter[str] = Counter()

    def set_gradient_name(self, variable: str, gradient: str) -> None:
        """Set the name of a variable's gradient."""
        self.names[variable] = gradient
        self.variables[gradient] = variable

    def has(self, gradient: str) -> bool:
        """Return whether a gradient has any contribution."""
        return gradient in self.parts or gradient in self.given

    def reaches(self, variable: str) -> bool:
        """Return whether the gradient of a variable has any contribution."""
        return variable in self.names and self.has(self.names[variable])

    def writes_for(self, variable: str) -> bool:
        """Return whether an op of this block writes a variable's gradient."""
        return self.names.get(variable) in self.parts

    def is_array(self, gradient: str) -> bool:
        """Return whether a gradient is that of a tensor array."""
        desc = self.block.lookup(self.variables[gradient])
        return desc is not None and desc.kind is VarKind.TENSOR_ARRAY

    def append(self, op: OpDesc) -> None:
        """Append an op unchanged and record which gradients it writes."""
        at = len(self.ops)
        self.ops.append(op)
        read = op.reads()
        accumulators = {
            name for name in op.writes() if name in read and self._updates_accumulator(name)
        }
        self.parts |= {
            name: [] for name in op.writes() if name in read and name not in accumulators
        }
        for slot, names in op.outputs.items():
            for index, name in enumerate(names):
                if name in self.variables and name not in accumulators:
                    self.parts.setdefault(name, []).append(_GradientWrite(at, slot, index))

    def _updates_accumulator(self, name: str) -> bool:
        """Return whether a name is an accumulator that an op updates in place."""
        return name in self.parts and name in self.variables and self.is_array(name)

    def accumulate(self, name: str) -> None:
        """Rename the parts of a gradient that has several, and append their sum."""
        writes = self.parts.get(name, [])
        whole = [name] if name in self.given and not self.is_array(name) else []
        if not writes or len(writes) + len(whole) < 2:
            return
        source = self.ops[writes[0].at].source
        parts = [self._rename_part(name, index) for index in range(len(writes))]
        self.parts[name] = []
        self.given.discard(name)
        attrs = {"use_mkldnn": False, "op_role": int(OpRole.BACKWARD)}
        self.append(OpDesc("sum", {"X": [*whole, *parts]}, {"Out": [name]}, attrs, source))

    def end(self, variable: str, added: Sequence[OpDesc]) -> None:
        """Drop the gradient of a variable that an op overwrites, except what `added` ops wrote."""
        if variable not in self.names:
            return
        gradient = self.names[variable]
        writes = self.parts.get(gradient, [])
        own = [write for write in writes if any(self.ops[write.at] is op for op in added)]
        if writes and not own:
            self.accumulate(gradient)
        self.parts.pop(gradient, None)
        self.given.discard(gradient)
        if own:
            self.parts[gradient] = own

    def _rename_part(self, name: str, index: int) -> str:
        """Rename a part where it is written; an accumulator, up to the next part."""
        part = f"{name}{PART}block{self.block.idx}@{self.counts[name]}"
        self.counts[name] += 1
        self.variables[part] = self.variables[name]
        writes = [*self.parts[name], _GradientWrite(len(self.ops), "", 0)]
        write = writes[index]
        self.ops[write.at].outputs[write.slot][write.index] = part
        if self.is_array(name):
            for op in self.ops[write.at + 1 : writes[index + 1].at]:
                op.inputs = renamed(op.inputs, name, part)
                op.outputs = renamed(op.outputs, name, part)
        return part


def as_backward(op: OpDesc) -> OpDesc:
    """Mark an op as part of the backward pass."""
    op.attrs = {**op.attrs, "op_role": int(OpRole.BACKWARD)}
    return op
