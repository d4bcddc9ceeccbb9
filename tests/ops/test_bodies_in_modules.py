"""Bodies of arithmetic ops still work when a generated module carries them.

There they have `np`, their arguments and the op's attributes, and the plain functions they call are
carried along; the rest of their class is not there.
"""

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from compiler.codegen.module_writer import ModuleWriter
from compiler.ir.opdef import Pointwise, call, find, parameters, slot_of
from compiler.ir.program import GRAD
from tests.ops.backward import each, types_of, weights_for
from tests.ops.samples import (
    activation,
    elementary,
    elementwise,
    isfinite,
    leaky_relu,
    linalg,
    matmul,
    reduce,
    smooth_activation,
    sort,
    vector_norm,
)

FAMILIES = (
    activation, elementary, elementwise, isfinite, leaky_relu, linalg, matmul, reduce,
    smooth_activation, sort, vector_norm,
)  # fmt: skip
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__.split(".")[-1])


def carried(function: Any) -> Any:
    """Return a function as a generated module has it."""
    writer = ModuleWriter((), ())
    name = writer.function(function, "carried")
    lines = ["from __future__ import annotations", *writer.globals, *writer.functions]
    scope = {"np": np}
    exec("\n".join(lines), scope)
    return scope[name]


def aligned(op: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return inputs in the shapes in which a pointwise body sees them."""
    if not isinstance(op, Pointwise):
        return values
    views = op.views(types_of({slot: v for slot, v in values.items() if slot in op.inputs()}))
    return {slot: v.reshape(views[slot]) if slot in views else v for slot, v in values.items()}


def assert_same_result(op: Any, body: str, values: dict[str, Any]) -> None:
    """Compare the result of a body in its class with that of the copied function."""
    names = parameters(type(op), body)
    first = [np] if names[0][0] == "xp" else []
    shapes = {n for n, annotation in names if "Shape" in annotation}
    inputs = {n: values.get(slot_of(n)) for n, _ in names[len(first) :]}
    seen = {n: each(v, np.shape) if n in shapes else v for n, v in inputs.items()}
    result = carried(getattr(type(op), body))(SimpleNamespace(**op.attributes), *first, **seen)
    np.testing.assert_equal(result, call(op, body, values, *first))


@every_family
def test_bodies_alone(family: ModuleType) -> None:
    for sample in family.SAMPLES:
        op = find(sample.op)(sample.attrs)
        body = "compute" if isinstance(op, Pointwise) else "numpy"
        assert_same_result(op, body, aligned(op, dict(sample.inputs)))


@every_family
def test_gradients_alone(family: ModuleType) -> None:
    for sample in [s for s in family.SAMPLES if s.grads and find(s.op).grad_class]:
        op = find(sample.op)(sample.attrs)
        outputs = op.evaluate(sample.inputs)
        weights = weights_for(sample.op, outputs)
        known = aligned(op, dict(sample.inputs)) | outputs
        assert_same_result(
            op, "grad", known | {slot + GRAD: weight for slot, weight in weights.items()}
        )
