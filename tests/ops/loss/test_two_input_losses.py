"""What is special about losses of two tensors: extreme values, what is ignored, what is refused."""

import re

import numpy as np
import pytest

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from tests.ops.backward import gradients

WIDE, TALL = TensorType(DType.FP32, (6, 3)), TensorType(DType.FP32, (6, 1))
CLASSES = TensorType(DType.INT64, (6, 1))


def column(*values, dtype=np.float32):
    return np.array(values, dtype).reshape(-1, 1)


def run(kind, inputs, **attrs):
    return find(kind)(attrs).evaluate(inputs)


@pytest.mark.parametrize(
    ("kind", "slots"),
    [
        ("hinge_loss", ("Logits", "Labels")),
        ("bce_loss", ("X", "Label")),
        ("modified_huber_loss", ("X", "Y")),
        ("kldiv_loss", ("X", "Target")),
        ("smooth_l1_loss", ("X", "Y")),
        ("rank_loss", ("Label", "Left", "Right")),
        ("margin_rank_loss", ("X1", "X2", "Label")),
        ("sigmoid_cross_entropy_with_logits", ("X", "Label")),
        ("teacher_student_sigmoid_loss", ("X", "Label")),
    ],
)
def test_nothing_is_broadcast(kind, slots):
    types = dict.fromkeys(slots, WIDE) | {slots[-1]: TALL}
    with pytest.raises(ShapeError, match=r"f32\[6, 3\].*f32\[6, 1\] must have one shape"):
        find(kind)({}).infer_types(types)


def test_labels_of_logits_are_classes():
    labels = TensorType(DType.INT64, (6, 3))
    with pytest.raises(
        ShapeError, match=r"Label is i64\[6, 3\], expected i64\[6, 1\], a class for"
    ):
        find("softmax_with_cross_entropy")({}).infer_types({"Logits": WIDE, "Label": labels})


def test_logits_far_from_zero():
    inputs = {"X": column(800, -800, 800, -800), "Label": column(0, 0, 1, 1)}
    assert run("sigmoid_cross_entropy_with_logits", inputs)["Out"].ravel().tolist() == [
        800,
        0,
        0,
        800,
    ]
    weights = {"Out": column(1, 1, 1, 1)}
    result = gradients("sigmoid_cross_entropy_with_logits", {}, inputs, weights)["X"]
    assert result.ravel().tolist() == [1, 0, 0, -1]


def test_labels_to_ignore_have_their_fraction_cut_off():
    """As the reference: 0.5 is ignored where 0 is, yet it counts among what divides."""
    inputs = {"X": column(1, 1, 1, 1), "Label": column(0, 0.5, 1, -0.5)}
    attrs = {"ignore_index": 0, "normalize": True}
    result = run("sigmoid_cross_entropy_with_logits", inputs, **attrs)["Out"].ravel()
    np.testing.assert_allclose(result, [0, 0, np.log1p(np.exp(-1)) / 3, 0], rtol=1e-6)


def test_where_all_labels_are_ignored_there_is_no_loss():
    inputs = {"X": column(1, 2), "Label": column(-100, -100)}
    result = run("sigmoid_cross_entropy_with_logits", inputs, normalize=True)["Out"]
    assert result.ravel().tolist() == [0, 0]


def test_log_loss_is_clamped_to_a_hundred():
    with np.errstate(divide="ignore"):
        result = run("bce_loss", {"X": column(0, 1), "Label": column(1, 0)})["Out"]
    assert result.ravel().tolist() == [100, 100]


def test_four_kinds_of_taught_labels():
    """A click or none, with a teacher's score or none; numbers recorded from 1.8.5."""
    inputs = {"X": column(0.1, 0.1, 0.2, 0.3), "Label": column(-2, -1, 0, 1)}
    result = run("teacher_student_sigmoid_loss", inputs)["Y"].ravel()
    np.testing.assert_allclose(result, [0.744397, 0.644397, 1.596278, 1.408710], rtol=1e-6)


def test_scores_beyond_the_bounds_teach_nothing():
    inputs = {"X": column(14.9, 15, 16, -15, -14.9), "Label": column(0.3, 0.3, 0.3, 0.3, 0.3)}
    weights = {"Y": np.ones((5, 1), np.float32)}
    result = gradients("teacher_student_sigmoid_loss", {}, inputs, weights)["X"].ravel()
    assert (result != 0).tolist() == [True, False, False, False, True]


def test_target_that_is_not_above_zero_counts_nothing():
    inputs = {"X": column(1, 2, 3), "Target": column(0, -1, 0.5)}
    result = run("kldiv_loss", inputs, reduction="none")["Loss"].ravel()
    np.testing.assert_allclose(result, [0, 0, 0.5 * (np.log(0.5) - 3)], rtol=1e-6)


def test_unknown_reductions():
    for kind, slot, label in (("kldiv_loss", "Target", WIDE), ("nll_loss", "Label", CLASSES)):
        with pytest.raises(BadAttribute, match="'reduction' is 'max'"):
            find(kind)({"reduction": "max"}).infer_types({"X": WIDE, slot: label})


def test_centers_move_to_their_rows():
    """By the rate times the sum of differences, over one more than there are."""
    inputs = {
        "X": column(4, 6, 1),
        "Label": np.array([[0], [0], [2]]),
        "Centers": column(1, 7, 1),
        "CenterUpdateRate": np.array([0.5], np.float32),
    }
    result = run("center_loss", inputs, cluster_num=3, need_update=True)
    assert result["SampleCenterDiff"].ravel().tolist() == [3, 5, 0]
    assert result["Loss"].ravel().tolist() == [4.5, 12.5, 0]
    np.testing.assert_allclose(result["CentersOut"].ravel(), [1 + 0.5 * 8 / 3, 7, 1], rtol=1e-6)
    kept = run("center_loss", inputs, cluster_num=3, need_update=False)["CentersOut"]
    np.testing.assert_array_equal(kept, inputs["Centers"])


@pytest.mark.parametrize("label", [-1, 3])
def test_label_without_a_center(label):
    inputs = {"X": column(4), "Label": np.array([[label]]), "Centers": column(1, 7, 1)}
    inputs["CenterUpdateRate"] = np.array([0.5], np.float32)
    with pytest.raises(ValueError, match=f"label {label} in row 0 is not a class: expected 0 to 2"):
        run("center_loss", inputs, cluster_num=3, need_update=True)


def test_one_weight_alone():
    with pytest.raises(ShapeError, match=r"InsideWeight f32.* needs both weights"):
        find("smooth_l1_loss")({}).infer_types({"X": WIDE, "Y": WIDE, "InsideWeight": WIDE})


def test_a_prior_for_each_class():
    prior = TensorType(DType.FP32, (1, 4))
    with pytest.raises(ShapeError, match="expected one prior per class"):
        find("label_smooth")({}).infer_types({"X": WIDE, "PriorDist": prior})


def test_impossible_class_costs_much_but_not_everything():
    inputs = {"X": np.array([[0, 1]], np.float32), "Label": np.array([[0]])}
    assert run("cross_entropy", inputs)["Y"] == np.float32(1e20)
    soft = {"X": inputs["X"], "Label": np.array([[0.5, 0.5]], np.float32)}
    assert run("cross_entropy", soft, soft_label=True)["Y"] == np.float32(5e19)


def test_soft_labels_have_the_shape_of_probabilities():
    with pytest.raises(ShapeError, match=re.escape("X f32[6, 3] and Label f32[6, 1]")):
        find("cross_entropy")({"soft_label": True}).infer_types({"X": WIDE, "Label": TALL})


def test_scores_far_apart_in_bpr_loss():
    inputs = {"X": np.array([[0, 400, -400]], np.float32), "Label": np.array([[0]])}
    assert run("bpr_loss", inputs)["Y"] == 200
    with pytest.raises(ValueError, match="label 3 in row 0 is not a class"):
        run("bpr_loss", {**inputs, "Label": np.array([[3]])})


def test_labels_to_ignore_weigh_nothing():
    inputs = {"X": np.array([[-1, -2], [-3, -4]], np.float32), "Label": np.array([1, 0])}
    inputs["Weight"] = np.array([0.5, 0.25], np.float32)
    result = run("nll_loss", inputs, ignore_index=0)
    assert (result["Out"].tolist(), result["Total_weight"].tolist()) == ([2], [0.25])
    nothing = run("nll_loss", {**inputs, "Label": np.array([0, 0])}, ignore_index=0)
    assert (nothing["Out"].tolist(), nothing["Total_weight"].tolist()) == ([0], [0])
