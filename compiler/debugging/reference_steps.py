"""The ops of a step as plain data, evaluated by their reference implementations.

A generated module contains the data as a literal: for each op its kind, its attributes, the labels
in its slots, its text and the user's line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from compiler.ir.opdef import OpDef, find, listed
from compiler.ir.types import Array, is_floating
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass

Labels: TypeAlias = Mapping[str, Sequence[str]]
"""The labels of the values in each slot."""


@dataclass(frozen=True)
class ReferenceOp:
    """An op: its definition with attributes, the labels of its inputs and outputs, and its text."""

    defn: OpDef
    reads: Labels
    writes: Labels
    text: str
    source: str

    def evaluate(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by label, computed from arrays by label."""
        slots = self.defn.slots
        operands = {
            slot: [arrays[label] for label in labels] for slot, labels in self.reads.items()
        }
        results = self.defn.evaluate(
            {slot: slots[slot].hold(slot_arrays) for slot, slot_arrays in operands.items()}
        )
        return {
            label: array
            for slot, labels in self.writes.items()
            for label, array in zip(labels, _values(self.defn, slot, results), strict=False)
        }


def _values(defn: OpDef, slot: str, results: Mapping[str, Any]) -> list[Any]:
    value = results.get(slot)
    return listed(value) if defn.slots[slot].many else [value]


@dataclass(frozen=True)
class ReferenceStep:
    """The ops of a step; `inputs` are labels of what it reads, `outputs` of what it stores."""

    ops: tuple[ReferenceOp, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    """The element types of values between its ops."""

    @staticmethod
    def of(row: Sequence[Any]) -> ReferenceStep:
        """Make a step of the literal in a module: its ops, inputs, outputs and inner types."""
        ops, inputs, outputs, dtypes = row
        converted = [
            ReferenceOp(find(kind)(attributes), reads, writes, text, source)
            for kind, attributes, reads, writes, text, source in ops
        ]
        return ReferenceStep(tuple(converted), tuple(inputs), tuple(outputs), tuple(dtypes))

    @cached_property
    def name(self) -> str:
        """The kinds of its ops."""
        return "+".join(op.defn.kind for op in self.ops)

    @cached_property
    def text(self) -> str:
        """The text of its ops."""
        return " and ".join(op.text for op in self.ops)

    def writer(self, output: int) -> ReferenceOp:
        """The op that computes an output, by its number."""
        label = self.outputs[output]
        return next(op for op in reversed(self.ops) if label in chain(*op.writes.values()))

    def evaluate(self, inputs: Mapping[str, Any], in_float64: bool = True) -> dict[str, Any]:
        """All values by label; floats are computed in float64, or in the types of the inputs."""
        arrays = {label: _operand(array, in_float64) for label, array in inputs.items()}
        with np.errstate(all="ignore"):
            for op in self.ops:
                arrays.update(op.evaluate(arrays))
        return arrays


def _operand(value: Any, in_float64: bool) -> Array:
    """An input of a reference: zeros without memory for a shape whose data is not read."""
    if is_shape(value):
        return np.broadcast_to(np.zeros((), np.float64 if in_float64 else np.float32), value)
    return value.astype(np.float64) if in_float64 and is_floating(value.dtype) else value


def is_shape(value: Any) -> bool:
    """Whether an input is the shape of an array whose data is not read."""
    return isinstance(value, tuple)
