"""What is special about elements by their places and parts of tensors."""

import re

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from compiler.ops.shape.slicing import AXIS_END, slice_length
from compiler.ops.shape.strided import stride_range
from tests.ops.backward import gradients

N = Dim.named("N")
X = np.arange(12.0, dtype=np.float32).reshape(4, 3)


def evaluated(kind, attrs=None, **inputs):
    return find(kind)(attrs or {}).evaluate(inputs)["Out"]


def inferred(kind, attrs, slot="Input", **shapes):
    types = {name: TensorType(DType.INT64, shape) for name, shape in shapes.items()}
    types[slot] = types[slot].with_dtype(DType.FP32)
    return find(kind)(attrs).infer_types(types)["Out"].shape


# ---- places


@pytest.mark.parametrize("places", [[4], [0, -1], [2, 9]])
@pytest.mark.parametrize(
    ("kind", "name"), [("gather", "Index"), ("index_select", "Index"), ("scatter", "Ids")]
)
def test_index_out_of_range_is_an_error(kind, name, places):
    others = {"Updates": X[: len(places)]} if kind == "scatter" else {}
    with pytest.raises(ValueError, match=rf"{kind}: index -?\d is out of range, expected 0 to 3"):
        evaluated(kind, X=X, **{name: np.array(places)}, **others)


@pytest.mark.parametrize("kind", ["gather_nd", "scatter_nd_add"])
def test_gather_nd_checks_each_axis(kind):
    others = {"Updates": X[0, :1]} if kind == "scatter_nd_add" else {}
    with pytest.raises(ValueError, match="index 3 is out of range, expected 0 to 2"):
        evaluated(kind, X=X, Index=np.array([[3, 3]]), **others)


def test_no_place_at_all_is_the_whole():
    none = np.zeros((2, 0), np.int64)
    assert evaluated("gather_nd", X=X, Index=none).shape == (2, 4, 3)
    twice = evaluated("scatter_nd_add", X=X, Index=none, Updates=np.ones((2, 4, 3), np.float32))
    np.testing.assert_array_equal(twice, X + 2)


@pytest.mark.parametrize(("overwrite", "want"), [(True, [0, 4, 2, 0]), (False, [0, 5, 2, 0])])
def test_gradient_of_a_row_taken_twice(overwrite, want):
    weights = {"Out": np.repeat([[1], [2], [4]], 3, axis=1).astype(np.float32)}
    inputs = {"X": X, "Index": np.array([1, 2, 1])}
    result = gradients("gather", {"overwrite": overwrite}, inputs, weights)["X"]
    np.testing.assert_array_equal(result[:, 0], want)


@pytest.mark.parametrize(("overwrite", "want"), [(True, [0, 9, 2, 3]), (False, [0, 15, 2, 3])])
def test_rows_that_are_written_twice(overwrite, want):
    updates = np.repeat([[6], [9]], 3, axis=1).astype(np.float32)
    inputs = {"X": X, "Ids": np.array([1, 1]), "Updates": updates}
    result = find("scatter")({"overwrite": overwrite}).evaluate(inputs)["Out"]
    np.testing.assert_array_equal(result[:, 0], [want[0], want[1], X[2, 0], X[3, 0]])


@pytest.mark.parametrize(
    ("kind", "shapes", "message"),
    [
        ("gather", {"Index": (2, 2)}, "expected [count] or [count, 1]"),
        ("gather_nd", {"Index": (2,)}, "expected a known last size"),
        ("gather_nd", {"Index": (2, 3)}, "expected a known last size, up to 2"),
        ("scatter", {"Ids": (2, 1), "Updates": (2, 3)}, "Ids is i64[2, 1], expected [count]"),
        ("index_sample", {"Index": (3, 3)}, "differ in the number of rows"),
    ],
)
def test_gather_nd_index_shapes(kind, shapes, message):
    types = {name: TensorType(DType.INT64, shape) for name, shape in shapes.items()}
    types |= {"X": TensorType(DType.FP32, (4, 3))}
    if "Updates" in types:
        types["Updates"] = types["Updates"].with_dtype(DType.FP32)
    with pytest.raises(ShapeError, match=re.escape(message)):
        find(kind)({}).infer_types(types)


def test_how_many_are_true_only_data_knows():
    type = TensorType(DType.BOOL, (N, 3))
    assert find("where_index")({}).infer_types({"Condition": type})["Out"].shape == (UNKNOWN, 2)
    nowhere = np.zeros((2, 3), np.bool_)
    assert evaluated("where_index", Condition=nowhere).shape == (0, 2)


def test_values_in_the_order_of_first_use():
    result = find("unique_with_counts")({"dtype": 3}).evaluate({"X": np.array([5, 2, 5, 9, 2, 5])})
    assert result["Out"].tolist() == [5, 2, 9]
    assert result["Index"].tolist() == [0, 1, 0, 2, 1, 0]
    assert result["Count"].tolist() == [3, 2, 1]


def test_values_that_are_sorted():
    result = find("unique")({"is_sorted": True}).evaluate({"X": np.array([[5, 2], [2, 9]])})
    assert result["Out"].tolist() == [2, 5, 9]
    assert result["Indices"].tolist() == [1, 0, 3]
    assert result["Index"].tolist() == [1, 0, 0, 2]
    assert result["Counts"].tolist() == [2, 1, 1]


# ---- parts


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("start", [-7, -2, -1, 0, 1, 4])
@pytest.mark.parametrize("end", [-3, -1, 0, 1, 3, AXIS_END])
def test_extent_is_how_many_python_takes(size, start, end):
    assert slice_length(size, start, end) == len(range(size)[start:end])


@pytest.mark.parametrize(
    ("start", "end", "want"),
    [
        (0, AXIS_END, N),
        (2, 2**31 - 1, N - 2),
        (1, -2, N - 3),
        (3, 4, 1),
        (-2, -1, 1),
        (-1, AXIS_END, 1),
        (0, 5, UNKNOWN),
        (-3, AXIS_END, UNKNOWN),
        (-4, -1, UNKNOWN),
    ],
)
def test_extent_of_an_axis_whose_size_has_a_name(start, end, want):
    assert slice_length(N, start, end) == want


def test_a_slice_that_takes_nothing_is_an_error():
    attrs = {"axes": [0], "starts": [2], "ends": [2]}
    with pytest.raises(ShapeError, match="2:2 of axis 0 of Input"):
        inferred("slice", attrs, Input=(4, 3))
    bounds = {"StartsTensor": np.array([2]), "EndsTensor": np.array([2])}
    with pytest.raises(ValueError, match="2:2 of an axis of size 4 is empty"):
        evaluated("slice", {"axes": [0]}, Input=X, **bounds)


def test_only_single_places_are_left_out():
    attrs = {"axes": [0], "starts": [1], "ends": [3], "decrease_axis": [0]}
    with pytest.raises(ShapeError, match="'decrease_axis' holds 0, but"):
        inferred("slice", attrs, Input=(4, 3))


def test_the_last_place_whose_number_a_tensor_holds():
    attrs = {"axes": [0], "starts": [-1], "ends": [-1], "decrease_axis": [0], "infer_flags": [-1]}
    bounds = {"StartsTensorList": [np.array([-1])], "EndsTensorList": [np.array([0])]}
    np.testing.assert_array_equal(evaluated("slice", attrs, Input=X, **bounds), X[-1])


@pytest.mark.parametrize("listed", ["Starts", "Ends", "Strides"])
def test_no_size_is_sure_beside_a_tensor_of_bounds(listed):
    """`infer_flags` may still say so; the attributes are placeholders."""
    bounds = {"starts": [1], "ends": [4], "strides": [1], listed.lower(): [-1]}
    types = {"Input": TensorType(DType.FP32, (5, 6))}
    types |= {f"{listed}Tensor": TensorType(DType.INT32, (1,))}
    op = find("strided_slice")({"axes": [0], "infer_flags": [1], **bounds})
    assert op.infer_types(types)["Out"].shape == (UNKNOWN, 6)


def test_slice_bounds_partly_from_tensors():
    attrs = {"axes": [0, 1], "starts": [1, -1], "ends": [3, -1], "infer_flags": [1, -1]}
    types = {"Input": TensorType(DType.FP32, (5, 6))}
    types |= {"StartsTensorList": [TensorType(DType.INT32, (1,))] * 2}
    assert find("slice")(attrs).infer_types(types)["Out"].shape == (2, UNKNOWN)


@pytest.mark.parametrize(
    ("start", "end", "stride", "places"),
    [
        (0, 5, 2, [0, 2, 4]),
        (-1, -5, -2, [3, 1]),
        (4, -1, -1, [4, 3, 2, 1, 0]),
        (6, 0, -2, [3, 1]),
        (2, -7, -2, [2, 0]),
        (-7, 8, 3, [0, 3]),
    ],
)
def test_strides_as_the_reference_counts_them(start, end, stride, places):
    assert list(stride_range(5, start, end, stride)) == places


@pytest.mark.parametrize(("start", "end", "stride"), [(0, 5, 0), (3, 1, 1), (0, 3, -1), (6, 8, 1)])
def test_strides_that_lead_nowhere(start, end, stride):
    attrs = {"axes": [0], "starts": [start], "ends": [end], "strides": [stride]}
    with pytest.raises(ShapeError, match="is empty or out of range for an axis of size 5"):
        inferred("strided_slice", attrs, Input=(5, 3))


def test_every_axis_has_a_number():
    with pytest.raises(BadAttribute, match="there are 1 'ends', expected one for each of"):
        inferred("slice", {"axes": [0, 1], "starts": [0, 0], "ends": [1]}, Input=(4, 3))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"shape": [2, 3], "offsets": [3, 0]}, "from [3, 0] exceeds X f32[4, 3]"),
        ({"shape": [2], "offsets": [0, 0]}, "exceeds X f32[4, 3]"),
        ({"shape": [2, 2], "offsets": [-1, 0]}, "from [-1, 0] exceeds"),
    ],
)
@pytest.mark.parametrize("kind", ["crop", "crop_tensor"])
def test_crops_are_parts(kind, attrs, message):
    with pytest.raises(ShapeError, match=re.escape(message)):
        inferred(kind, attrs, slot="X", X=(4, 3))


def test_crops_defined_by_tensors_are_parts():
    bounds = {"Shape": np.array([2, 2]), "Offsets": np.array([3, 0])}
    with pytest.raises(ValueError, match="2 elements from 3 exceed an axis of size 4"):
        evaluated("crop_tensor", X=X, **bounds)


@pytest.mark.parametrize(
    ("kind", "attrs"),
    [
        ("reverse", {"axis": []}),
        ("flip", {"dims": [0, 0]}),
        ("roll", {"shifts": [1, 2], "dims": [0]}),
    ],
)
def test_directions_that_are_none(kind, attrs):
    with pytest.raises(BadAttribute, match=f"{kind}: '"):
        inferred(kind, attrs, slot="X", X=(4, 3))
