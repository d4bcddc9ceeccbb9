"""The code that is generated for one op gives the numbers that the op means.

Each sample goes through passes, plan and module by itself, forward and backward: with sizes as
numbers and with the batch size as a name, with all outputs wanted and with each alone. Each module
runs twice, for a step must not lean on what the step before it left behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import runtime
from compiler.ir.dims import Dim
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import find, type_of
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
    given = {slot: known[slot] for slot in cls.inputs() if known.get(slot) is not None}
    return Case(cls.kind, sample.attrs, given, results)


def check(case: Case) -> None:
    """Compile and run a case in every way."""
    first = next((v for v in case.values.values() if not isinstance(v, list)), np.empty(1))
    full = [slot for slot, value in case.results.items() if value.size]
    alone = [[slot] for slot in full] if len(full) > 1 else []
    for wanted in [full, *alone]:
        run(case, wanted, NOBODY)
        run(case, wanted, len(first))


def run(case: Case, wanted: list[str], batch: int) -> None:
    """Compile a case for some of its outputs, run it twice, and compare."""
    graph, feed = graph_of(case, wanted, batch)
    compute = runtime.load(module_of(graph))
    for _ in range(2):
        for slot, found in zip(wanted, compute(feed), strict=True):
            want = case.results[slot]
            assert (found.shape, found.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-6, err_msg=slot)


def graph_of(case: Case, wanted: list[str], batch: int) -> tuple[Graph, dict[str, Any]]:
    """Return the graph of one op, and its feed; the batch size has a name wherever it occurs."""
    graph, feed = Graph(), dict[str, Any]()

    def fed(array: Any) -> Var:
        name = f"x{len(feed)}"
        feed[name] = np.ascontiguousarray(array)
        return graph.feed(name, named(type_of(array), batch))

    inputs = {slot: each(value, fed) for slot, value in case.values.items()}
    types = {slot: each(vars, lambda var: var.type) for slot, vars in inputs.items()}
    inferred = find(case.op)(case.attrs).infer_types(types)
    slots = find(case.op).slots
    kept = [slot for slot in case.results if slot in wanted or not slots[slot].optional]
    outputs = {slot: [graph.var(f"y{i}", inferred[slot])] for i, slot in enumerate(kept)}
    listed = {slot: vars if isinstance(vars, list) else [vars] for slot, vars in inputs.items()}
    graph.op(case.op, listed, outputs, case.attrs)
    graph.results = [outputs[slot][0] for slot in wanted]
    return graph, feed


def named(type: TensorType, batch: int) -> TensorType:
    """Return a type in which one size has a name."""
    return type.with_shape([Dim.named("N") if size == batch else size for size in type.shape])


DIFFERENTIATED = [s for s in samples() if s.grads and find(s.op).grad_class]


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.op)
def test_forward(sample: Sample) -> None:
    check(forward(sample))


@pytest.mark.parametrize("sample", DIFFERENTIATED, ids=lambda sample: sample.op)
def test_backward(sample: Sample) -> None:
    check(backward(sample))
