"""Generated code of one op computes the same as its reference implementation.

Each sample goes through passes, plan and module alone, forward and backward: with static sizes and
with a dynamic batch size, with all outputs and, for one sample of an op, with each alone. Each
module runs twice, since a step must not depend on what the previous one left behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import runtime
from compiler.ir.dims import Dim
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import find, listed, type_of
from compiler.ir.program import GRAD
from compiler.ir.types import TensorType
from tests.codegen.support import module_of
from tests.ops.backward import each, gradient_op, weights_for
from tests.ops.samples import Sample, samples

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Case:
    """A call of an op and what it should give."""

    op: str
    attrs: Mapping[str, Any]
    values: Mapping[str, Any]
    results: Mapping[str, Any]


def forward(sample: Sample) -> Case:
    """Return the case of an op itself."""
    results = find(sample.op)(sample.attrs).evaluate(sample.inputs)
    return Case(sample.op, sample.attrs, sample.inputs, results)


def backward(sample: Sample) -> Case:
    """Return the case of an op's gradient."""
    values = {**sample.inputs, **forward(sample).results}
    weights = weights_for(sample.op, forward(sample).results)
    results = gradient_op(sample.op, sample.attrs, values, weights)[1]
    known = {**values, **{slot + GRAD: weight for slot, weight in weights.items()}}
    cls: Any = find(sample.op).grad_class
    inputs = {slot: known[slot] for slot in cls.inputs() if known.get(slot) is not None}
    return Case(cls.kind, sample.attrs, inputs, results)


def check(case: Case) -> None:
    """Compile and run a case for all its outputs, with known sizes and with a name of one."""
    run(case, with_elements(case), NOBODY)
    run(case, with_elements(case), batch_of(case))


def check_alone(case: Case) -> None:
    """Compile and run a case for each of its outputs, if it has several."""
    slots = with_elements(case)
    for slot in slots if len(slots) > 1 else []:
        run(case, [slot], batch_of(case))


def with_elements(case: Case) -> list[str]:
    """The outputs that have elements."""
    return [slot for slot, value in case.results.items() if any(v.size for v in listed(value))]


def batch_of(case: Case) -> int:
    """The first size of the first input that has axes; 1 without one."""
    return next((len(v) for v in case.values.values() if is_array(v) and v.ndim), 1)


def run(case: Case, wanted: list[str], batch: int) -> None:
    """Compile a case for some of its outputs, run it twice, and compare."""
    graph, feed = graph_of(case, wanted, batch)
    compute = runtime.load(module_of(graph))
    for _ in range(2):
        wants = [(slot, want) for slot in wanted for want in listed(case.results[slot])]
        for (slot, want), found in zip(wants, compute(feed), strict=True):
            assert (found.shape, found.dtype) == (np.shape(want), want.dtype)
            np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-6, err_msg=slot)


def is_array(value: Any) -> bool:
    """Whether a value is a tensor, and neither a list nor an empty slot."""
    return isinstance(value, np.ndarray)


def graph_of(case: Case, wanted: list[str], batch: int) -> tuple[Graph, dict[str, Any]]:
    """Return the graph of one op, and its feed; the batch size has a name wherever it occurs."""
    graph, feed = Graph(), dict[str, Any]()

    def fed(array: Any) -> Var:
        name = f"x{len(feed)}"
        feed[name] = np.ascontiguousarray(array)
        return graph.feed(name, named(type_of(array), batch))

    arguments = {slot: value for slot, value in case.values.items() if value is not None}
    inputs = {slot: each(value, fed) for slot, value in arguments.items()}
    types = {slot: each(vars, lambda var: var.type) for slot, vars in inputs.items()}
    inferred = find(case.op)(case.attrs).infer_types(types)
    slots = find(case.op).slots
    kept = [slot for slot in case.results if slot in wanted or not slots[slot].optional]
    outputs = {
        slot: [graph.var(f"y{i}_{j}", type) for j, type in enumerate(listed(inferred[slot]))]
        for i, slot in enumerate(kept)
    }
    vars = {slot: listed(found) for slot, found in inputs.items()}
    graph.op(case.op, vars, outputs, case.attrs)
    graph.results = [var for slot in wanted for var in outputs[slot]]
    return graph, feed


def named(type: TensorType, batch: int) -> TensorType:
    """Return a type in which one size has a name."""
    return type.with_shape([Dim.named("N") if size == batch else size for size in type.shape])


ALONE = [s for s in samples() if not find(s.op).is_composite]
"""A composite op becomes others before there is a graph: test_composite.py has those."""
DIFFERENTIATED = [s for s in samples() if s.grads and find(s.op).grad_class]


@pytest.mark.parametrize("sample", ALONE, ids=lambda sample: sample.op)
def test_forward(sample: Sample) -> None:
    check(forward(sample))


@pytest.mark.parametrize("sample", DIFFERENTIATED, ids=lambda sample: sample.op)
def test_backward(sample: Sample) -> None:
    check(backward(sample))


LAST = {s.op: s for s in ALONE}
"""A sample of each op."""


@pytest.mark.parametrize("sample", LAST.values(), ids=LAST.keys())
def test_each_output_alone(sample: Sample) -> None:
    check_alone(forward(sample))
    if sample in DIFFERENTIATED:
        check_alone(backward(sample))


@pytest.mark.slow
def test_each_output_of_every_sample_alone() -> None:
    for sample in ALONE:
        check_alone(forward(sample))
    for sample in DIFFERENTIATED:
        check_alone(backward(sample))
