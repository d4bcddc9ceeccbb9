"""What is special about updates: outputs overwrite inputs, and the gradient has the type of Param."""

import re

import numpy as np
import pytest

import compiler.ops
from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType

assert compiler.ops, "importing it fills the registry"

RATE = np.array([0.1], np.float32)
ONE = np.ones(1, np.float32)


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_every_output_overwrites_what_it_updates(kind):
    outputs = find(kind).outputs()
    assert {slot: slot.removesuffix("Out") for slot in outputs} == {
        slot.name: slot.inplace for slot in outputs.values()
    }


def test_gradient_of_another_shape_is_refused():
    types = {
        "Param": TensorType(DType.FP32, (3, 4)),
        "Grad": TensorType(DType.FP32, (4,)),
        "LearningRate": TensorType(DType.FP32, (1,)),
    }
    with pytest.raises(ShapeError, match=re.escape("Param f32[3, 4] and Grad f32[4]")):
        find("sgd")({}).infer_types(types)


def test_momentum_needs_mu():
    with pytest.raises(BadAttribute, match="needs the attribute 'mu'"):
        find("momentum")({})


@pytest.mark.parametrize(("nesterov", "moved"), [(False, 0.1 * 2.8), (True, 0.1 * (1 + 0.9 * 2.8))])
def test_momentum_by_hand(nesterov, moved):
    values = {"Param": ONE * 5, "Grad": ONE, "Velocity": ONE * 2, "LearningRate": RATE}
    found = find("momentum")({"mu": 0.9, "use_nesterov": nesterov}).evaluate(values)
    np.testing.assert_allclose(found["VelocityOut"], 2.8, rtol=1e-6)
    np.testing.assert_allclose(found["ParamOut"], 5 - moved, rtol=1e-6)


def test_first_step_of_adam_is_the_learning_rate():
    values = {"Param": ONE, "Grad": ONE * 7, "Moment1": ONE * 0, "Moment2": ONE * 0}
    powers = {"Beta1Pow": ONE * 0.9, "Beta2Pow": ONE * 0.999, "LearningRate": RATE}
    found = find("adam")({}).evaluate(values | powers)
    np.testing.assert_allclose(found["ParamOut"], 0.9, rtol=1e-5)
    np.testing.assert_allclose(found["Beta2PowOut"], 0.999**2, rtol=1e-6)
