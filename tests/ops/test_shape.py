"""What is special about other shapes: what is known of them early, and what is refused."""

import re

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN, Dim
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType

N = Dim.named("N")


def whole(*sizes):
    return np.array(sizes, np.int32)


def inferred(kind, shape, attrs, slot="X", **others):
    inputs = {slot: TensorType(DType.FP32, shape)}
    inputs |= {name: TensorType(DType.INT32, sizes) for name, sizes in others.items()}
    return find(kind)(attrs).infer_types(inputs)["Out"].shape


def evaluated(kind, attrs, **inputs):
    return find(kind)(attrs).evaluate(inputs)["Out"]


@pytest.mark.parametrize(
    ("kind", "attrs", "out"),
    [
        ("flatten2", {"axis": 2}, (N * 3, 4)),
        ("flatten_contiguous_range", {"start_axis": 1, "stop_axis": 2}, (N, 12)),
        ("unsqueeze2", {"axes": [0, -1]}, (1, N, 3, 4, 1)),
        ("unsqueeze2", {"axes": [1, 1]}, (N, 1, 1, 3, 4)),
        ("squeeze2", {"axes": []}, (N, 3, 4)),
        ("transpose2", {"axis": [2, 0, 1]}, (4, N, 3)),
        ("expand", {"expand_times": [2, 1, 3]}, (N * 2, 3, 12)),
        ("tile", {"repeat_times": [2]}, (N, 3, 8)),
        ("expand_v2", {"shape": [5, -1, 3, 4]}, (5, N, 3, 4)),
        ("pad", {"paddings": [0, 1, 2, 0, 0, 0]}, (N + 1, 5, 4)),
    ],
)
def test_sizes_with_a_name_are_kept(kind, attrs, out):
    assert inferred(kind, (N, 3, 4), attrs) == out


@pytest.mark.parametrize(
    ("kind", "attrs", "slot", "sizes", "out"),
    [
        ("reshape2", {}, "Shape", (2,), (UNKNOWN, UNKNOWN)),
        ("reshape2", {"shape": [0, -1, 6]}, "Shape", (3,), (UNKNOWN, UNKNOWN, 6)),
        ("unsqueeze2", {}, "AxesTensor", (2,), (UNKNOWN,) * 5),
        ("expand", {}, "ExpandTimes", (3,), (UNKNOWN,) * 3),
        ("tile", {}, "RepeatTimes", (4,), (UNKNOWN,) * 4),
    ],
)
def test_sizes_from_a_tensor_are_not_known(kind, attrs, slot, sizes, out):
    assert inferred(kind, (N, 3, 4), attrs, **{slot: sizes}) == out


def test_a_list_of_unknown_length_is_no_shape():
    with pytest.raises(ShapeError, match=r"Shape is i32.N., expected a known number"):
        inferred("reshape2", (2, 3), {}, Shape=(N,))


def test_squeeze_drops_axes_of_size_one_at_run_time():
    assert evaluated("squeeze2", {"axes": []}, X=np.zeros((1, 3, 1))).shape == (3,)


@pytest.mark.parametrize("kind", ["reshape", "reshape2"])
def test_a_size_in_a_tensor_may_be_zero_or_worked_out(kind):
    assert evaluated(kind, {}, X=np.zeros((2, 3, 4)), Shape=whole(0, -1)).shape == (2, 12)


@pytest.mark.parametrize(
    ("kind", "attrs", "message"),
    [
        ("flatten2", {"axis": 4}, "'axis' is 4, expected 0 to 3"),
        ("squeeze2", {"axes": [1]}, "expected size 1 at axis 1"),
        ("squeeze2", {"axes": [3]}, "axes: axis 3 is out of range for an input of rank 3"),
        ("unsqueeze2", {"axes": [5]}, "axis 5 is out of range for rank 3"),
        ("transpose2", {"axis": [0, 1, 1]}, "expected all axes of X"),
        ("transpose2", {"axis": [0, 1]}, "expected all axes of X"),
        ("expand", {"expand_times": [1, 0, 1]}, "expected 3 numbers from 1 up"),
        ("expand_v2", {"shape": [2, 5, 4]}, "does not broadcast to [2, 5, 4]"),
        ("pad2d", {"paddings": [0, 0, 0, 0]}, "expected 4 axes and 4 numbers"),
        (
            "flatten_contiguous_range",
            {"start_axis": 2, "stop_axis": 1},
            "start_axis 2 exceeds stop_axis 1",
        ),
    ],
)
def test_shapes_that_do_not_fit(kind, attrs, message):
    with pytest.raises(ShapeError, match=re.escape(message)):
        inferred(kind, (2, 3, 4), attrs)


@pytest.mark.parametrize(
    ("kind", "attrs"),
    [
        ("pad", {"paddings": [1, 1]}),
        ("pad", {"paddings": [0, -1, 0, 0, 0, 0]}),
        ("pad2d", {"mode": "wrap"}),
        ("pad2d", {"data_format": "CHWN"}),
    ],
)
def test_paddings_that_are_none(kind, attrs):
    with pytest.raises(BadAttribute, match=r"'paddings' is|'mode' is"):
        inferred(kind, (2, 3, 4), attrs)


def test_mirror_images_need_room():
    with pytest.raises(ShapeError, match="0 and 3 exceed what an axis of size 3 can reflect"):
        inferred("pad2d", (1, 1, 3, 4), {"paddings": [0, 3, 0, 0], "mode": "reflect"})


def test_expand_as_takes_whole_times_also_when_sizes_have_names():
    assert inferred("expand_as", (N, 2), {}, target_tensor=(N, 6)) == (N, 6)
    with pytest.raises(ValueError, match=r"does not divide .5, 6."):
        evaluated("expand_as", {}, X=np.zeros((2, 2)), target_tensor=np.zeros((5, 6)))


def test_diagonals_of_wide_and_narrow_matrices():
    X = np.arange(12.0).reshape(3, 4)
    for offset in (-2, 0, 1, 3):
        np.testing.assert_array_equal(
            evaluated("diag_v2", {"offset": offset}, X=X), np.diag(X, offset)
        )
        assert inferred("diag_v2", (3, 4), {"offset": offset}) == np.diag(X, offset).shape
    assert inferred("diag_v2", (N, 4), {}) == (UNKNOWN,)


def test_embedded_diagonals_need_two_axes():
    with pytest.raises(BadAttribute, match="axes 1 and -2 of the result are the same"):
        inferred("diag_embed", (2, 3), {"dim1": 1, "dim2": -2}, slot="Input")
