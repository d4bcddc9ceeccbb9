"""What is special about making and reshaping tensors."""

import re

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.program import GRAD, OpDesc
from compiler.ir.types import DType, TensorType

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


def test_fill_value_as_text_keeps_int64_precision():
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
    result = op.evaluate({"X": np.array([-1.5, 0.0, 2.7], np.float32)})["Out"]
    np.testing.assert_array_equal(result, [-1, 0, 2])


@pytest.mark.parametrize(("text", "dtype"), [("0x10", 5), ("inf", 3), ("nan", 2), ("two", 5)])
def test_text_that_is_no_number(text, dtype):
    op = find("fill_constant")({"shape": [1], "dtype": dtype, "str_value": text})
    with pytest.raises(BadAttribute, match=f"'str_value' '{text}' is not a number of type"):
        op.infer_types({})


def test_constants_of_sizes_and_numbers_from_tensors():
    sizes, number = np.array([2, 3], np.int32), np.array([7], np.int64)
    op = find("fill_constant")({"dtype": 3})
    known = {"ShapeTensor": TensorType(DType.INT32, (2,))}
    assert op.infer_types(known)["Out"].shape == (UNKNOWN, UNKNOWN)
    result = op.evaluate({"ShapeTensor": sizes, "ValueTensor": number})["Out"]
    np.testing.assert_array_equal(result, np.full((2, 3), 7))


def test_a_number_is_of_the_type_it_fills():
    inputs = {"ValueTensor": TensorType(DType.FP32, (1,))}
    with pytest.raises(ShapeError, match="ValueTensor is f32"):
        find("fill_constant")({"shape": [2], "dtype": 3}).infer_types(inputs)


def test_bool_fill_values():
    inputs = {"X": TensorType(DType.FP32, (2,))}
    with pytest.raises(BadAttribute, match=r"'value' 1.5 is not representable as bool"):
        find("fill_any_like")({"value": 1.5, "dtype": 0}).infer_types(inputs)


def test_sequences_are_counted_in_place_of_rows():
    inputs = {"Input": np.zeros((6, 2)), "Input_lod": [np.array([0, 1, 3]), np.array([0, 2, 5, 6])]}
    attrs = {"shape": [-1, 4], "value": 2.0}
    op = find("fill_constant_batch_size_like")(attrs)
    assert op.evaluate(inputs)["Out"].shape == (3, 4)
    assert op.evaluate({"Input": np.zeros((6, 2))})["Out"].shape == (6, 4)


@pytest.mark.parametrize(("start", "end", "step"), [(0, 1, 0), (3, 1, 1), (1, 3, -1)])
def test_steps_that_do_not_lead_there(start, end, step):
    inputs = {"Start": np.array([start]), "End": np.array([end]), "Step": np.array([step])}
    with pytest.raises(ValueError, match=f"step {step} does not reach {end} from {start}"):
        find("range")({}).evaluate(inputs)


def test_a_range_of_nothing():
    same = {"Start": np.array([2]), "End": np.array([2]), "Step": np.array([1])}
    assert find("range")({}).evaluate(same)["Out"].shape == (0,)


def test_one_hot_depth():
    op = find("one_hot")({"depth": 3})
    with pytest.raises(ValueError, match="one_hot: 3 is out of range, expected 0 to 2"):
        op.evaluate({"X": np.array([[1], [3]])})


def test_shards_cover_the_index():
    attrs = {"index_num": 7, "nshards": 3}
    X, result = np.arange(7)[:, np.newaxis], []
    for shard in range(3):
        out = find("shard_index")({**attrs, "shard_id": shard}).evaluate({"X": X})["Out"]
        result += [(shard, int(place)) for place in out[out >= 0]]
    assert result == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]
