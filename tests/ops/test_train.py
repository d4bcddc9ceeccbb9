"""What is special about updates: outputs overwrite inputs, and the gradient has the type of Param."""

import re

import numpy as np
import pytest

import runtime
from compiler.driver import compile_graph
from compiler.errors import BadAttribute, ShapeError
from compiler.ir.graph import Graph
from compiler.ir.opdef import find, type_of
from compiler.ir.opdef.type_inference import bind, infer_types
from compiler.ir.program import OpDesc
from compiler.ir.types import DType, TensorType

RATE = np.array([0.1], np.float32)
ONE = np.ones(1, np.float32)


UPDATES = "sgd momentum lars_momentum adagrad decayed_adagrad proximal_adagrad proximal_gd "
UPDATES += "adadelta rmsprop adam lamb adamax dpsgd sgd_rows adagrad_rows adam_rows"


@pytest.mark.parametrize("kind", UPDATES.split())
def test_updates_overwrite_their_inputs(kind):
    outputs = find(kind).outputs()
    assert {slot: slot.removesuffix("Out") for slot in outputs} == {
        slot.name: slot.inplace for slot in outputs.values()
    }


def test_gradient_of_another_shape_is_rejected():
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
    result = find("momentum")({"mu": 0.9, "use_nesterov": nesterov}).evaluate(values)
    np.testing.assert_allclose(result["VelocityOut"], 2.8, rtol=1e-6)
    np.testing.assert_allclose(result["ParamOut"], 5 - moved, rtol=1e-6)


def test_first_step_of_adam_is_the_learning_rate():
    values = {"Param": ONE, "Grad": ONE * 7, "Moment1": ONE * 0, "Moment2": ONE * 0}
    powers = {"Beta1Pow": ONE * 0.9, "Beta2Pow": ONE * 0.999, "LearningRate": RATE}
    result = find("adam")({}).evaluate(values | powers)
    np.testing.assert_allclose(result["ParamOut"], 0.9, rtol=1e-5)
    np.testing.assert_allclose(result["Beta2PowOut"], 0.999**2, rtol=1e-6)


def test_rows_move_as_a_whole_parameter_does() -> None:
    """What is no row of a sparse gradient stays; what is one moves as by a dense gradient."""
    rows, values = np.array([3, 1, 3]), np.array([[0.5, 1.0], [0.25, -1.0], [0.75, 0.5]], "float32")
    dense = np.zeros((5, 2), np.float32)
    np.add.at(dense, rows, values)
    state = np.linspace(0.1, 1.0, 10, dtype=np.float32).reshape(5, 2)
    powers = {"Beta1Pow": ONE * 0.9, "Beta2Pow": ONE * 0.999}
    known = {"Param": state, "LearningRate": RATE, "Moment": state, **powers}
    known |= {"Moment1": state, "Moment2": state}
    for kind in ("sgd", "adagrad", "adam"):
        whole = find(kind)({}).evaluate(known | {"Grad": dense})
        sparse = find(f"{kind}_rows")({}).evaluate(known | {"Grad": values, "Grad_rows": rows})
        for slot in (slot for slot in whole if whole[slot].size > 1):
            np.testing.assert_allclose(sparse[slot][[1, 3]], whole[slot][[1, 3]], rtol=1e-6)
            np.testing.assert_array_equal(sparse[slot][[0, 2, 4]], state[[0, 2, 4]])


def test_noise_differs_from_step_to_step_without_a_seed() -> None:
    values = {"Param": ONE, "Grad": ONE, "LearningRate": RATE}
    drawn = {float(find("dpsgd")({}).evaluate(values)["ParamOut"][0]) for _ in range(3)}
    seeded = {float(find("dpsgd")({"seed": 5}).evaluate(values)["ParamOut"][0]) for _ in range(3)}
    assert (len(drawn), len(seeded)) == (3, 1)


def test_windows_of_averages() -> None:
    """Sums of 1s: a window closes once it has `min` steps and its share of all updates."""
    sums = {f"in_sum_{i}": ONE * 0 for i in (1, 2, 3)}
    names = ("in_num_accumulates", "in_old_num_accumulates", "in_num_updates")
    inputs = {"param": ONE, **sums, **{name: np.zeros(1, np.int64) for name in names}}
    op = find("average_accumulates")(
        {"average_window": 0.5, "max_average_window": 3, "min_average_window": 2}
    )
    seen = []
    for _ in range(7):
        result = op.evaluate(inputs)
        inputs |= {slot.replace("out_", "in_"): value for slot, value in result.items()}
        seen.append([int(inputs[each][0]) for each in (*sums, *names[:2])])
    assert seen[1] == [0, 0, 2, 0, 2]
    assert seen[5] == [2, 0, 2, 2, 2]
    assert seen[6] == [0, 0, 3, 0, 3]


@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize(
    ("attrs", "moved", "squares"),
    [
        ({"epsilon": 1e38}, [0.11122632, -0.17658365], [0.18500701, 0.2143022]),
        ({"rho": -1.0}, [np.nan, np.nan], [np.nan, np.nan]),
    ],
)
def test_adadelta_at_extreme_attributes_is_that_of_1_8_5(target, attrs, moved, squares):
    """Denormal numbers, which native code takes for 0, and roots of negative numbers, which are
    no numbers in the mean of squares either. Recorded from 1.8.5.
    """
    feed = {
        "Param": [0.04881352, 0.21518934],
        "Grad": [-0.0624128, 0.39177299],
        "AvgSquaredGrad": [0.28402227, 0.46279833],
        "AvgSquaredUpdate": [0.19453919, 0.21750304],
    }
    feed = {name: np.array(values, np.float32) for name, values in feed.items()}
    g, op = Graph(), OpDesc("adadelta", {}, {}, attrs)
    inputs = {name: [g.feed(name, type_of(array))] for name, array in feed.items()}
    types = infer_types(bind(op), bind(op).types_of(inputs), op)
    outputs = {slot: [g.var(slot + ".new", type)] for slot, type in types.items()}
    g.op("adadelta", inputs, outputs, op.attrs)
    g.results = [outputs["ParamOut"][0], outputs["AvgSquaredUpdateOut"][0]]
    for found, wanted in zip(
        runtime.load(compile_graph(g, target=target).module)(feed), (moved, squares), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
