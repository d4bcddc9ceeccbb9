"""Sizes in attributes and in tensors at once: which of them an op obeys, as release 1.8.5 does."""

import numpy as np
import pytest

import fluid
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.dims import UNKNOWN

FILLED = {"value": 1.0, "dtype": 5}
UNIFORM = {"min": 1.0, "max": 2.0, "dtype": 5}
NORMAL = {"mean": 1.0, "dtype": 5}
INTEGERS = {"low": 1, "high": 9, "dtype": 3}


def run(kind, attrs, tensors, output="Out"):
    """Run one op on X [3, 4], and on a tensor per size, or on one tensor of all sizes."""
    program = fluid.Program()
    feed = {}
    with fluid.program_guard(program):
        inputs = {}
        for slot, value in tensors.items():
            values = value if isinstance(value, list) else [value]
            for index, number in enumerate(values):
                array = np.asarray(number, "float32" if slot in ("X", "Theta") else "int32")
                feed[f"{slot}{index}"] = array
                fluid.data(f"{slot}{index}", array.shape, str(array.dtype))
            inputs[slot] = [f"{slot}{index}" for index in range(len(values))]
        block = program.global_block()
        kept = "int64" if kind == "randint" else "float32"
        result = block.create_var(name="result", dtype=kept)
        outputs = {output: [result.name]}
        if "2" in kind:
            outputs["XShape"] = [block.create_var(name="x_shape", dtype=kept).name]
        block.append_op(kind, inputs=inputs, outputs=outputs, attrs=attrs)
    return fluid.Executor().run(program, feed=feed, fetch_list=["result"])[0]


X = np.arange(12.0, dtype="float32").reshape(3, 4)


@pytest.mark.parametrize("shape", [[2, 3], [2, -1], [4, 3]])
@pytest.mark.parametrize(
    "tensors", [{"ShapeTensor": (4, 5)}, {"ShapeTensorList": [[4], [5]]}], ids=["one", "each"]
)
@pytest.mark.parametrize(
    ("kind", "attrs"),
    [
        ("fill_constant", FILLED),
        ("uniform_random", UNIFORM),
        ("gaussian_random", NORMAL),
        ("randint", INTEGERS),
    ],
)
def test_tensors_override_the_shape_of_what_is_created(kind, attrs, tensors, shape):
    assert run(kind, {**attrs, "shape": shape}, tensors).shape == (4, 5)


@pytest.mark.parametrize("shape", [[2, 6], [3, 4], [0, 6], [12]])
@pytest.mark.parametrize("kind", ["reshape", "reshape2"])
def test_a_tensor_per_size_overrides_the_shape_of_a_reshape(kind, shape):
    result = run(kind, {"shape": shape}, {"X": [X], "ShapeTensor": [[6], [2]]})
    np.testing.assert_array_equal(result, X.reshape(6, 2))


@pytest.mark.parametrize("tensors", [{"ExpandTimes": (1, 3)}, {"expand_times_tensor": [[1], [3]]}])
def test_tensors_override_how_often_an_expand_repeats(tensors):
    result = run("expand", {"expand_times": [2, 1]}, {"X": [X], **tensors})
    np.testing.assert_array_equal(result, np.tile(X, (1, 3)))


@pytest.mark.parametrize("tensors", [{"Shape": (3, 2)}, {"ShapeTensor": [[3], [2]]}])
def test_tensors_override_the_sizes_of_a_crop(tensors):
    attrs = {"offsets": [0, 1], "shape": [2, 2]}
    np.testing.assert_array_equal(run("crop_tensor", attrs, {"X": [X], **tensors}), X[:, 1:3])


@pytest.mark.parametrize("tensors", [{"AxesTensor": (2,)}, {"AxesTensorList": [[2]]}])
def test_the_axes_of_an_unsqueeze_override_tensors(tensors):
    assert run("unsqueeze2", {"axes": [1]}, {"X": [X], **tensors}).shape == (3, 1, 4)
    assert run("unsqueeze2", {"axes": []}, {"X": [X], **tensors}).shape == (3, 4, 1)


def test_the_attribute_of_an_affine_grid_overrides_the_tensor():
    tensors = {"Theta": [np.ones((2, 2, 3))], "OutputShape": (2, 1, 4, 5)}
    grid = run("affine_grid", {"output_shape": [2, 1, 3, 3]}, tensors, "Output")
    assert grid.shape == (2, 3, 3, 2)
    assert run("affine_grid", {}, tensors, "Output").shape == (2, 4, 5, 2)


def test_integers_among_variables_remain_known():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [None, 4, 3])
        rows = fluid.data("rows", [1], "int32")
        reshaped = fluid.layers.reshape(x, [rows, 6])
        graph = to_graph(reshaped.block.program, {"x": (2, 4, 3), "rows": (1,)}, [reshaped.name])
    assert graph.results[0].type.shape == (UNKNOWN, 6)
