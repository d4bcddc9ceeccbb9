"""What is special about losses: labels that are no classes or to be ignored, extreme values."""

import re

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from tests.ops.backward import gradients

SHARES = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]], np.float32)
BOTH = [("cross_entropy2", "X", "Y"), ("softmax_with_cross_entropy", "Logits", "Loss")]
ONES = np.ones((2, 1), np.float32)


def run(kind, slot, labels, **attrs):
    inputs = {slot: SHARES, "Label": np.array(labels).reshape(2, 1)}
    return find(kind)(attrs).evaluate(inputs)


def backward(kind, slot, out, labels, **attrs):
    inputs = {slot: SHARES, "Label": np.array(labels).reshape(2, 1)}
    return gradients(kind, attrs, inputs, {out: ONES})[slot]


@pytest.mark.parametrize(("kind", "slot", "out"), BOTH)
@pytest.mark.parametrize(("labels", "wrong", "row"), [([0, 3], 3, 1), ([-1, 0], -1, 0)])
def test_label_that_is_no_class(kind, slot, out, labels, wrong, row):
    message = f"label {wrong} in row {row} is not a class: expected 0 to 2, or -100"
    with pytest.raises(ValueError, match=re.escape(message)):
        run(kind, slot, labels)


@pytest.mark.parametrize(("kind", "slot", "out"), BOTH)
@pytest.mark.parametrize("ignore", [-100, -1, 255, 1])
def test_ignored_rows_have_no_loss(kind, slot, out, ignore):
    loss = run(kind, slot, [ignore, 2], ignore_index=ignore)[out]
    assert loss[0, 0] == 0.0
    assert loss[1, 0] == run(kind, slot, [0, 2])[out][1, 0]


@pytest.mark.parametrize(("kind", "slot", "out"), BOTH)
@pytest.mark.parametrize("ignore", [-100, -1, 255])
def test_ignored_rows_have_no_gradient(kind, slot, out, ignore):
    result = backward(kind, slot, out, [ignore, 2], ignore_index=ignore)
    np.testing.assert_array_equal(result[0], [0, 0, 0])
    np.testing.assert_array_equal(result[1], backward(kind, slot, out, [0, 2])[1])


def test_class_that_is_ignored_keeps_its_gradient_from_logits():
    """As the reference's CPU kernel; recorded in softmax_with_cross_entropy__0."""
    kind, slot, out = BOTH[1]
    result = backward(kind, slot, out, [1, 2], ignore_index=1)
    np.testing.assert_array_equal(result, backward(kind, slot, out, [1, 2]))


def test_loss_of_impossible_class_is_finite():
    """As the reference: -log(0) is 1e20, and logits count as at most 64 apart."""
    with np.errstate(divide="ignore"):
        inputs = {"X": np.zeros((1, 3), np.float32), "Label": np.array([[1]])}
        assert find("cross_entropy2")({}).evaluate(inputs)["Y"] == np.float32(1e20)
    inputs = {"Logits": np.array([[200.0, 0.0]], np.float32), "Label": np.array([[1]])}
    assert find("softmax_with_cross_entropy")({}).evaluate(inputs)["Loss"] == 64.0


@pytest.mark.parametrize(("kind", "slot", "out"), BOTH)
@pytest.mark.parametrize(
    "label", [TensorType(DType.INT32, (2, 1)), TensorType(DType.INT64, (3, 1))]
)
def test_labels_of_wrong_type(kind, slot, out, label):
    types = {slot: TensorType(DType.FP32, (2, 3)), "Label": label}
    with pytest.raises(ShapeError, match=re.escape(str(label))):
        find(kind)({}).infer_types(types)


def test_gradient_has_the_shape_that_xshape_brings():
    op = find("cross_entropy_grad2")({})
    types = {
        "Label": TensorType(DType.INT64, (UNKNOWN, 1)),
        "XShape": TensorType(DType.FP32, (UNKNOWN, 3, 0)),
        "MatchX": TensorType(DType.FP32, (UNKNOWN, 1)),
        "Y@GRAD": TensorType(DType.FP32, (UNKNOWN, 1)),
    }
    assert op.infer_types(types) == {"X@GRAD": TensorType(DType.FP32, (UNKNOWN, 3))}
