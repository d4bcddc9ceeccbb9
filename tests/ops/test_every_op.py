"""Every op compared with itself: types with results, gradients with finite differences."""

from typing import Any

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import GradOp, find, listed, registered
from compiler.ir.types import TensorType
from tests.ops.backward import (
    differences,
    each,
    gradient_op,
    gradients,
    types_of,
    weights_for,
    widened,
)
from tests.ops.samples import WITHOUT_NUMBERS, Sample, samples

FORWARD = [kind for kind in registered() if not issubclass(find(kind), GradOp)]
WITH_GRADIENT = [sample for sample in samples() if sample.grads]


every_sample = pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.op)
every_gradient = pytest.mark.parametrize("sample", WITH_GRADIENT, ids=lambda sample: sample.op)


def test_every_op_has_a_sample() -> None:
    sampled = {sample.op for sample in samples()}
    wrong = [kind for kind in FORWARD if (kind in sampled) == (kind in WITHOUT_NUMBERS)]
    assert wrong == [], "they need a sample in samples/"


def test_every_gradient_has_a_sample() -> None:
    needed = {kind for kind in FORWARD if is_differentiable(kind) and kind not in WITHOUT_NUMBERS}
    assert needed - {sample.op for sample in WITH_GRADIENT} == set()


def is_differentiable(kind: str) -> bool:
    cls = find(kind)
    return (cls.grad_class is not None or hasattr(cls, "grad_ops")) and not cls.updates_if


@every_sample
def test_types_are_those_of_results_and_inputs_are_unchanged(sample: Sample) -> None:
    op = find(sample.op)(sample.attrs)
    copies = {slot: each(value, np.copy) for slot, value in sample.inputs.items()}
    results = op.evaluate(sample.inputs)
    for slot, value in copies.items():
        np.testing.assert_equal(sample.inputs[slot], value)
    inferred = op.infer_types(types_of(sample.inputs))
    needed = {slot.name for slot in op.outputs().values() if not slot.optional}
    assert needed <= set(results) <= set(op.outputs())
    for slot, real in types_of(results).items():
        assert_inferred(inferred[slot], real)
    assert_types_of_unknown_sizes_agree(sample, inferred)
    if sample.grads and op.grad_class:
        known = {**sample.inputs, **results}
        types, result = gradient_op(sample.op, sample.attrs, known, weights_for(sample.op, results))
        assert types_of(result) == types


def assert_inferred(inferred: Any, real: Any) -> None:
    """Compare an inferred type, or a list of them, with a real one: equal, or of unknown sizes."""
    for said, type in zip(listed(inferred), listed(real), strict=True):
        assert said.dtype is type.dtype
        pairs = zip(said.shape, type.shape, strict=True)
        assert all(size in (UNKNOWN, want) for size, want in pairs), f"{said} for {type}"


def assert_types_of_unknown_sizes_agree(sample: Sample, inferred: Any) -> None:
    """Where sizes are unknown, a size that is inferred all the same must be the real one."""
    op = find(sample.op)(sample.attrs)
    types = types_of(sample.inputs)
    try:
        result = op.infer_types({slot: each(t, unsized) for slot, t in types.items()})
    except ShapeError as error:  # how many axes there are may hang on a size
        assert "expected a known" in str(error)
        return
    for slot, real in inferred.items():
        assert_inferred(result[slot], real)


def unsized(type: TensorType) -> TensorType:
    """Return a type of which only the number of axes is known."""
    return type.with_shape((UNKNOWN,) * type.rank)


@every_gradient
def test_gradient_is_that_of_finite_differences(sample: Sample) -> None:
    inputs = widened(sample.inputs)
    weights = weights_for(sample.op, find(sample.op)(sample.attrs).evaluate(inputs))
    actual = gradients(sample.op, sample.attrs, inputs, weights)
    for slot in sample.grads:
        wanted = differences(sample.op, sample.attrs, inputs, weights, slot)
        assert_close(actual[slot], wanted)


def assert_close(found: Any, wanted: Any) -> None:
    """Hold arrays, or lists of them, against each other: shapes, and values to about 1e-6."""
    pairs = zip(found, wanted, strict=True) if isinstance(found, list) else [(found, wanted)]
    for got, want in pairs:
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
