"""Gradients and the parts they come in: who writes which, and where parts are summed.

A gradient that several ops give parts of is summed right before the first op that reads it whole,
or at the end; the parts are called `x@GRAD@RENAME@block0@k`. A gradient of a tensor array is a pot:
reading it for the gradient of a write takes an element out, and what the gradient of a read writes
goes in. So a part of it may be used in between, and is renamed there as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from compiler.ir.autodiff.loop_counters import renamed
from compiler.ir.program import Block, OpDesc, OpRole, VarKind

PART = "@RENAME@"
"""What follows a gradient's name in the name of a part of it."""


@dataclass(frozen=True)
class _Part:
    """Where a gradient, or a part of it, is written: by which op, and where in its outputs."""

    at: int
    slot: str
    index: int


class Parts:
    """Gradient ops of a block in order, and which of them write what part of which gradient.

    `given` are the gradients that come from outside, whole or as one part more.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.ops: list[OpDesc] = []
        self.names: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.parts: dict[str, list[_Part]] = {}
        self.given: set[str] = set()
        self.counts: Counter[str] = Counter()

    def know(self, variable: str, gradient: str) -> None:
        """Call a variable's gradient by a name."""
        self.names[variable] = gradient
        self.variables[gradient] = variable

    def has(self, gradient: str) -> bool:
        """True where something has come up for a gradient."""
        return gradient in self.parts or gradient in self.given

    def gives(self, variable: str) -> bool:
        """True where something for a variable's gradient is written here."""
        return self.names.get(variable) in self.parts

    def is_array(self, gradient: str) -> bool:
        """True for the gradient of a tensor array."""
        desc = self.block.lookup(self.variables[gradient])
        return desc is not None and desc.kind is VarKind.TENSOR_ARRAY

    def append(self, op: OpDesc) -> None:
        """Append an op as it is and remember which gradients it writes."""
        at = len(self.ops)
        self.ops.append(op)
        read = op.reads()
        kept = {name for name in op.writes() if name in read and self._is_kept(name)}
        self.parts |= {name: [] for name in op.writes() if name in read and name not in kept}
        for slot, names in op.outputs.items():
            for index, name in enumerate(names):
                if name in self.variables and name not in kept:
                    self.parts.setdefault(name, []).append(_Part(at, slot, index))

    def _is_kept(self, name: str) -> bool:
        """True for a pot that an op takes from and puts into: it is still the same one."""
        return name in self.parts and name in self.variables and self.is_array(name)

    def add_up(self, name: str) -> None:
        """Where a gradient came in parts, rename them and append their sum."""
        places = self.parts.get(name, [])
        whole = [name] if name in self.given and not self.is_array(name) else []
        if not places or len(places) + len(whole) < 2:
            return
        source = self.ops[places[0].at].source
        parts = [self._part(name, place) for place in range(len(places))]
        self.parts[name] = []
        self.given.discard(name)
        attrs = {"use_mkldnn": False, "op_role": int(OpRole.BACKWARD)}
        self.append(OpDesc("sum", {"X": [*whole, *parts]}, {"Out": [name]}, attrs, source))

    def _part(self, name: str, place: int) -> str:
        """Rename a part where it is written, and where a pot is used until the next part."""
        part = f"{name}{PART}block{self.block.idx}@{self.counts[name]}"
        self.counts[name] += 1
        self.variables[part] = self.variables[name]
        places = [*self.parts[name], _Part(len(self.ops), "", 0)]
        here = places[place]
        self.ops[here.at].outputs[here.slot][here.index] = part
        if self.is_array(name):
            for op in self.ops[here.at + 1 : places[place + 1].at]:
                op.inputs = renamed(op.inputs, name, part)
                op.outputs = renamed(op.outputs, name, part)
        return part


def as_backward(op: OpDesc) -> OpDesc:
    """The op, said to be one of the backward pass."""
    op.attrs = {**op.attrs, "op_role": int(OpRole.BACKWARD)}
    return op
