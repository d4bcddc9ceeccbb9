"""Extreme attribute values, and op calls that use them.

A case is the call of a sample of `tests/ops/samples`, or of its gradient op, with one attribute
set to an unusual value: integer limits, NaN, infinities, lists that are too long, wrong types.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.ir.opdef import find, listed
from compiler.ir.opdef.slots import Attr
from compiler.ir.program import GRAD
from tests.ops.backward import weights_for
from tests.ops.samples import Sample, samples

INTEGERS = (
    -(2**63), -(2**62), -(2**31), -(2**31) + 1, -(2**15), -3, -2, -1, 0, 1, 2, 3, 7, 64, 2**15,
    10**6, 10**9, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 10**30,
)  # fmt: skip
FLOATS = (
    math.nan, math.inf, -math.inf, 1e38, -1e38, 1e300, -1e300, 5e-324, 1e-40, 0.0, -0.0, 1.0, -1.0,
    0.5, 1e9, 1e-9, 2.0**31, 2.0**63,
)  # fmt: skip
STRINGS = ("", "unknown", "x" * 10_000, "NCHW", "NHWC", "é\0\n", "relu", "max", "__class__")
WRONG: tuple[Any, ...] = (
    None, True, False, -1, 0, 2**63, 1.5, math.nan, math.inf, "", "x", b"x", [], [1], ["x"],
    [None], (), {}, {"a": 1}, 1j, object, ...,
)  # fmt: skip
"""Values of every type; those of the attribute's own type are tried too."""
WRONG_ITEMS: tuple[Any, ...] = (None, "x", 1.5, math.nan, math.inf, True, [1], {}, b"x", 1j)


@dataclass(frozen=True, eq=False)
class Call:
    """An op with arrays in its slots; valid with its unchanged `attrs`."""

    op: str
    values: Mapping[str, Any]
    attrs: Mapping[str, Any]
    sample: Sample


@dataclass(frozen=True, eq=False)
class Case:
    """A call with one attribute set to a value."""

    call: Call
    name: str
    value: Any

    @property
    def attrs(self) -> dict[str, Any]:
        """All attributes of the call."""
        return {**self.call.attrs, self.name: self.value}

    def is_consistent(self) -> bool:
        """Whether the forward op has the outputs that a gradient op reads, also with these
        attributes.
        """
        if self.call.op == self.call.sample.op:
            return True
        outputs = find(self.call.sample.op)(self.attrs).evaluate(self.call.sample.inputs)
        read = [
            (outputs[slot], value) for slot, value in self.call.values.items() if slot in outputs
        ]
        pairs = [pair for a, b in read for pair in zip(listed(a), listed(b), strict=True)]
        return all(np.array_equal(a, b) for a, b in pairs)

    def __str__(self) -> str:
        others = {name: value for name, value in self.call.attrs.items() if name != self.name}
        return f"{self.call.op}({self.name}={self.value!r:.80}; {others!r:.300})"


def calls(samples_of_an_op: int = 2) -> Iterator[Call]:
    """The first samples of every op and of its gradient op; ops without attributes are skipped."""
    taken: dict[str, int] = {}
    for sample in samples():
        for call in calls_of(sample):
            if find(call.op).attrs and taken.get(call.op, 0) < samples_of_an_op:
                taken[call.op] = taken.get(call.op, 0) + 1
                yield call


def calls_of(sample: Sample) -> Iterator[Call]:
    """The call of a sample, and of its gradient op with the outputs of the sample."""
    yield Call(sample.op, sample.inputs, sample.attrs, sample)
    gradient = find(sample.op).grad_class
    if not sample.grads or gradient is None:
        return
    outputs = find(sample.op)(sample.attrs).evaluate(sample.inputs)
    weights = weights_for(sample.op, outputs)
    values = {
        **sample.inputs,
        **outputs,
        **{slot + GRAD: weight for slot, weight in weights.items()},
    }
    inputs = {slot: values[slot] for slot in gradient.inputs() if values.get(slot) is not None}
    yield Call(gradient.kind, inputs, sample.attrs, sample)


def cases(samples_of_an_op: int = 2) -> list[Case]:
    """Every attribute of every call with every value."""
    return [
        Case(call, name, value)
        for call in calls(samples_of_an_op)
        for name, declared in find(call.op).attrs.items()
        for value in _values(declared, call.attrs.get(name, declared.default))
    ]


def _values(declared: Attr[Any], usual: Any) -> Iterator[Any]:
    own = {int: INTEGERS, float: FLOATS, str: STRINGS, bool: (True, False)}
    yield from _lists(usual or []) if declared.kind is list else own.get(declared.kind, ())
    yield from WRONG


def _lists(usual: list[Any]) -> Iterator[list[Any]]:
    item = usual[0] if usual else 1
    extremes = FLOATS if isinstance(item, float) else INTEGERS
    yield from ([], list(usual[:-1]), list(usual) + list(usual), [*usual, item])
    yield [item] * 10_000
    yield [list(usual)]
    for value in (*extremes, *WRONG_ITEMS):
        yield [value] * max(len(usual), 1)
        if len(usual) > 1:
            yield [value, *usual[1:]]
            yield [*usual[:-1], value]
