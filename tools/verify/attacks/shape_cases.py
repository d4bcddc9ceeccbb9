"""Op calls in which one operand has a shape that does not belong to the others.

A case is the call of a sample of `tests/ops/samples`, or of its gradient op with all its slots
(inputs, saved outputs, gradients of outputs), in which the shape of one operand is mutated, or the
declared shape of one output. In the form `known` all sizes are known at compile time; in `batch`
the first axis of every operand has a symbolic size of its own, in `open` every axis has, so that
shapes that do not fit appear at run time only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np

from compiler.ir.dims import Dim
from compiler.ir.opdef import find, listed
from compiler.ir.opdef.slots import Slot
from compiler.ir.types import TensorType, type_of
from compiler.support.cached_property import cached_property
from tests.ops.samples import samples
from tools.verify.attacks.attribute_values import Call, calls_of

KNOWN, BATCH, OPEN = FORMS = ("known", "batch", "open")
HUGE = 1 << 16
"""Maximum bytes of an operand whose axis is made as long as possible."""

Operand = tuple[str, int]
"""A slot, and the index of an operand in it."""
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Case:
    """A call with one operand of another shape; `number` is that of the call."""

    number: int
    call: Call
    operand: Operand
    mutation: str
    shape: Shape
    form: str

    @property
    def is_output(self) -> bool:
        """Whether the declared shape of an output is mutated, instead of an operand."""
        return find(self.call.op).slots[self.operand[0]].is_output

    @cached_property
    def arrays(self) -> dict[str, list[Any]]:
        """The operands by slot, one of them in another shape; its elements are repeated."""
        arrays = {slot: _arrays(value) for slot, value in self.call.values.items()}
        if not self.is_output:
            slot, place = self.operand
            arrays[slot][place] = np.resize(arrays[slot][place], self.shape)
            arrays |= self._saved_outputs(arrays)
        return arrays

    def _saved_outputs(self, arrays: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """The outputs of the forward op that a gradient op reads, computed from the mutated input,
        if they have the shapes of those of the sample.
        """
        sample, (mutated, _) = self.call.sample, self.operand
        if self.call.op == sample.op or mutated not in sample.inputs:
            return {}
        cls = find(sample.op)
        inputs = {**sample.inputs, mutated: cls.slots[mutated].hold(arrays[mutated])}
        try:
            outputs = cls(sample.attrs).evaluate(inputs)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return {}
        saved = {slot: _arrays(outputs[slot]) for slot in arrays if outputs.get(slot) is not None}
        return {
            slot: slot_outputs
            for slot, slot_outputs in saved.items()
            if [output.shape for output in slot_outputs] == [array.shape for array in arrays[slot]]
        }

    @cached_property
    def types(self) -> dict[str, list[TensorType]]:
        """The types that operands are declared with."""
        return {
            slot: [self._type(slot, place, array) for place, array in enumerate(arrays)]
            for slot, arrays in self.arrays.items()
        }

    def _type(self, slot: str, place: int, array: Any) -> TensorType:
        opened = {KNOWN: 0, BATCH: 1, OPEN: array.ndim}[self.form]
        sizes = [
            Dim.named(f"{slot.replace('@', '_')}_{place}_{axis}") if axis < opened else size
            for axis, size in enumerate(array.shape)
        ]
        return type_of(array).with_shape(sizes)

    @property
    def program(self) -> str:
        """A text that is equal for cases with the same program."""
        return f"{self.number} {self.types}" + f" {self}" * self.is_output

    def __str__(self) -> str:
        slot, place = self.operand
        shapes = {s: [np.shape(a) for a in arrays] for s, arrays in self.arrays.items()}
        index = f"[{place}]" if find(self.call.op).slots[slot].many else ""
        changed = f"{slot}{index} {self.mutation} {self.shape}"
        return f"{self.call.op} {self.form}: {changed}; {shapes}; {dict(self.call.attrs)!r:.200}"


def cases(only: str = "") -> Iterator[Case]:
    """Every mutation of every operand and output of every call, in every form."""
    for number, call in enumerate(_calls(only)):
        for form in FORMS:
            yield from _cases_of(number, call, form)


def chosen(count: int, seed: int, only: str = "", part: tuple[int, int] = (0, 1)) -> list[Case]:
    """Cases drawn by a seed, in the order of their calls; of `part` (i, n) slice i of n."""
    every = list(cases(only))
    if count < len(every):
        numbers = sorted(Random(seed).sample(range(len(every)), count))
        every = [every[number] for number in numbers]
    index, slices = part
    return every[len(every) * index // slices : len(every) * (index + 1) // slices]


def _calls(only: str) -> Iterator[Call]:
    """The calls of ops, and of gradient ops, whose names contain a text."""
    for sample in samples():
        cls = find(sample.op)
        kinds = (cls.kind, cls.grad_class.kind if cls.grad_class else "")
        if not cls.has_effects and any(only in kind for kind in kinds):
            yield from (call for call in calls_of(sample) if only in call.op)


def _cases_of(number: int, call: Call, form: str) -> Iterator[Case]:
    slots = find(call.op).slots
    for slot, value in call.values.items():
        for place, array in enumerate(_arrays(value)):
            for mutation, shape in mutations(array.shape, array.itemsize):
                yield Case(number, call, (slot, place), mutation, shape, form)
    if form == KNOWN and not find(call.op).is_composite:
        for operand, shape in _output_shapes(call, slots):
            for mutation, other in mutations(shape, 8):
                yield Case(number, call, operand, f"declared {mutation}", other, form)


def _output_shapes(call: Call, slots: Mapping[str, Slot]) -> Iterator[tuple[Operand, Shape]]:
    """The shapes of the outputs of a call that are known at compile time."""
    types = {s: slots[s].hold([type_of(a) for a in _arrays(v)]) for s, v in call.values.items()}
    for slot, inferred in find(call.op)(call.attrs).infer_types(types).items():
        for place, type in enumerate(listed(inferred)):
            if (
                slot in slots
                and type is not None
                and all(isinstance(size, int) for size in type.shape)
            ):
                yield (slot, place), type.shape


def mutations(shape: Shape, itemsize: int) -> Iterator[tuple[str, Shape]]:
    """Other shapes, each once, with what was done."""
    seen = {shape}
    for mutation, other in _mutations(shape, itemsize):
        if other not in seen and min(other, default=0) >= 0:
            seen.add(other)
            yield mutation, other


def _mutations(shape: Shape, itemsize: int) -> Iterator[tuple[str, Shape]]:
    for axis, size in enumerate(shape):
        others = prod(shape[:axis] + shape[axis + 1 :])
        huge = max(size + 1, HUGE // max(1, itemsize * others))
        sizes = {"+1": size + 1, "-1": size - 1, "to 0": 0, "to 1": 1, "huge": huge}
        if axis == 0:
            sizes["twice"] = 2 * size
        for change, changed in sizes.items():
            yield f"axis {axis} {change}", (*shape[:axis], changed, *shape[axis + 1 :])
    yield "an axis before", (1, *shape)
    yield "an axis after", (*shape, 1)
    yield "transposed", shape[::-1]
    yield "of size 1", (1,) * len(shape)
    yield "flat", (prod(shape),)
    if shape:
        yield "without first axis", shape[1:]
        yield "without last axis", shape[:-1]


def _arrays(value: Any) -> list[Any]:
    return [np.asarray(item) for item in listed(value) if item is not None]
