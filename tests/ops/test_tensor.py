"""What is special about making and reshaping tensors."""

import re

import numpy as np
import pytest

import compiler.ops
from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.program import GRAD, OpDesc
from compiler.ir.types import DType, TensorType

assert compiler.ops, "importing it fills the registry"

N = Dim.named("N")


def reshaped(x, shape):
    op = find("reshape2")({"shape": shape})
    return op.infer_types({"X": TensorType(DType.FP32, x)})["Out"].shape


@pytest.mark.parametrize(
    ("x", "shape", "out"),
    [
        ((2, 3, 4), [6, -1], (6, 4)),
        ((2, 3, 4), [0, -1], (2, 12)),
        ((N, 3, 4), [0, -1], (N, 12)),
        ((N, 3, 4), [-1, 12], (N, 12)),
        ((UNKNOWN, 3, 4), [0, -1], (UNKNOWN, 12)),
        ((UNKNOWN, 3, 4), [-1, 6], (UNKNOWN, 6)),
        ((2, 3), [0, 0, 1], (2, 3, 1)),
    ],
)
def test_reshape_fills_in_sizes(x, shape, out):
    assert reshaped(x, shape) == out


@pytest.mark.parametrize("shape", [[5, -1], [-1, -1], [4, 5], [2, 3, 0], [-2, 3]])
def test_reshape_that_does_not_fit(shape):
    message = f"reshape2: X is f32[3, 4], which 'shape' {shape} does not fit"
    with pytest.raises(ShapeError, match=re.escape(message)):
        reshaped((3, 4), shape)


@pytest.mark.parametrize("kind", ["fill_constant", "uniform_random", "gaussian_random"])
def test_new_tensors_need_every_size(kind):
    with pytest.raises(BadAttribute, match=re.escape(f"{kind}: attribute 'shape' is [-1, 2]")):
        find(kind)({"shape": [-1, 2]}).infer_types({})


def test_text_holds_what_a_float_cannot():
    exact = find("fill_constant")({"shape": [1], "dtype": 3, "str_value": "9007199254740993"})
    assert exact.evaluate({})["Out"][0] == 2**53 + 1


def test_gradient_of_cast_is_a_cast_back():
    attrs = {"in_dtype": 5, "out_dtype": 6}
    op = OpDesc("cast", {"X": ["x"]}, {"Out": ["y"]}, attrs)
    (step,) = find("cast")(attrs).grad_ops(op, lambda name: name + GRAD)
    assert (step.inputs, step.outputs) == ({"X": ["y@GRAD"]}, {"Out": ["x@GRAD"]})
    assert step.attrs == {"in_dtype": 6, "out_dtype": 5}


def test_cast_cuts_fractions_off():
    op = find("cast")({"in_dtype": 5, "out_dtype": 3})
    found = op.evaluate({"X": np.array([-1.5, 0.0, 2.7], np.float32)})["Out"]
    np.testing.assert_array_equal(found, [-1, 0, 2])
