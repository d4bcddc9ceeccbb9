"""Special cases of metrics: what counts, state across batches, errors."""

import re

import numpy as np
import pytest

from compiler.errors import ShapeError
from compiler.ir.opdef import find
from compiler.ir.types import DType, TensorType
from compiler.ops.metric.positive_negative_pair import pair_weights
from tests.ops.samples import integers, numbers


def run(kind, inputs, **attrs):
    return find(kind)(attrs).evaluate(inputs)


# ---- accuracy -----------------------------------------------------------------------------------


def test_a_row_counts_once():
    guesses = np.array([[0, 1], [1, 1], [3, 0]])
    result = run("accuracy", {"Indices": guesses, "Label": np.array([[1], [1], [2]])})
    assert result["Correct"].tolist() == [2]
    assert result["Total"].tolist() == [3]
    assert result["Accuracy"].tolist() == [np.float32(2 / 3)]


def test_only_the_shape_of_out_is_read():
    assert find("accuracy").slots["Out"].shape_only


def test_a_label_for_every_row():
    types = {s: TensorType(DType.INT64, (3, n)) for s, n in (("Indices", 2), ("Label", 2))}
    with pytest.raises(ShapeError, match=re.escape("rows i64[3, 1] and Label i64[3, 2]")):
        find("accuracy")({}).infer_types(types)


# ---- auc ----------------------------------------------------------------------------------------

BINS = 16


def batch(seed, rows=20):
    chance = numbers(rows, 1, low=0.0, high=1.0, seed=seed)
    scores = np.concatenate([1 - chance, chance], axis=1)
    return {"Predict": scores, "Label": integers(rows, 1, high=2, seed=seed)}


def pairs_in_order(batches):
    """Return the share of pairs of both labels that scores order, by bins; ties count half."""
    places = np.concatenate([(b["Predict"][:, 1] * (BINS - 1)).astype(int) for b in batches])
    labels = np.concatenate([b["Label"][:, 0] for b in batches])
    lead = np.subtract.outer(places[labels > 0], places[labels == 0])
    return ((lead > 0) + 0.5 * (lead == 0)).mean()


def empty_counts(steps, unused=0):
    size = (steps + 1) * BINS + (steps > 0) + unused
    shape = (size,) if steps or unused else (1, BINS)
    return dict.fromkeys(("StatPos", "StatNeg"), np.zeros(shape, np.int64))


@pytest.mark.parametrize(("steps", "unused"), [(0, 0), (1, 0), (3, 0), (0, 1), (2, 5)])
def test_area_of_the_last_batches(steps, unused):
    """The layer makes a count more than is used without steps, as the reference does."""
    counts, batches = empty_counts(steps, unused), [batch(seed) for seed in range(6)]
    for number, each in enumerate(batches):
        result = run("auc", {**each, **counts}, num_thresholds=BINS - 1, slide_steps=steps)
        counts = {slot: result[slot + "Out"] for slot in counts}
        of = batches[max(0, number + 1 - steps) if steps else 0 : number + 1]
        np.testing.assert_allclose(result["AUC"], [pairs_in_order(of)])
        assert unused == 0 or not counts["StatPos"][-unused:].any()


@pytest.mark.parametrize("label", [0, 1])
def test_labels_of_one_kind_have_no_area(label):
    inputs = {**batch(1), "Label": np.full((20, 1), label), **empty_counts(0)}
    assert run("auc", inputs, num_thresholds=BINS - 1, slide_steps=0)["AUC"].tolist() == [0.0]


@pytest.mark.parametrize("wrong", [1.5, -0.5, np.nan])
def test_score_that_is_no_probability(wrong):
    inputs = {**batch(1), **empty_counts(0)}
    inputs["Predict"] = inputs["Predict"].copy()
    inputs["Predict"][3, 1] = wrong
    with pytest.raises(ValueError, match=f"Predict has {wrong}, expected probabilities"):
        run("auc", inputs, num_thresholds=BINS - 1, slide_steps=0)


def test_counts_of_another_size():
    types = {"Predict": TensorType(DType.FP32, (5, 2)), "Label": TensorType(DType.INT64, (5, 1))}
    types |= dict.fromkeys(("StatPos", "StatNeg"), TensorType(DType.INT64, (1, 8)))
    with pytest.raises(ShapeError, match=re.escape("StatPos is i64[1, 8], expected 33 elements")):
        find("auc")({"num_thresholds": 15}).infer_types(types)
    wide = {**types, "Predict": TensorType(DType.FP32, (5, 3))}
    with pytest.raises(ShapeError, match=re.escape("expected [rows, 2] or [rows, 1]")):
        find("auc")({"num_thresholds": 7}).infer_types(wide)


# ---- mean_iou -----------------------------------------------------------------------------------


def test_classes_that_do_not_occur_are_left_out():
    inputs = {"Predictions": np.array([0, 0, 1, 3]), "Labels": np.array([0, 1, 1, 0])}
    result = run("mean_iou", inputs, num_classes=5)
    assert result["OutCorrect"].tolist() == [1, 1, 0, 0, 0]
    assert result["OutWrong"].tolist() == [2, 1, 0, 1, 0]
    np.testing.assert_allclose(result["OutMeanIou"], [(1 / 3 + 1 / 2 + 0) / 3], rtol=1e-6)


def test_class_that_is_none():
    inputs = {"Predictions": np.array([0, 5]), "Labels": np.array([0, 1])}
    with pytest.raises(ValueError, match="Predictions has 5, expected classes from 0 to 4"):
        run("mean_iou", inputs, num_classes=5)


# ---- precision and recall -----------------------------------------------------------------------


def test_nothing_to_be_wrong_about_is_right():
    """As the reference: a class that is never guessed has precision 1."""
    inputs = {
        s: np.array(v, np.int32).reshape(-1, 1)
        for s, v in (("Indices", [1, 1, 2]), ("Labels", [0, 0, 0]))
    }
    result = run("precision_recall", inputs, class_number=4)
    np.testing.assert_allclose(result["BatchMetrics"], [0.5, 0.75, 0.6, 0, 0, 0])
    assert result["AccumStatesInfo"].tolist() == [
        [0, 0, 0, 3],
        [0, 2, 1, 0],
        [0, 1, 2, 0],
        [0, 0, 3, 0],
    ]


# ---- detection_map ------------------------------------------------------------------------------

TRUE = np.array([[0, 0.1, 0.1, 0.4, 0.4], [0, 0.5, 0.5, 0.9, 0.9], [1, 0.2, 0.2, 0.6, 0.6]])
FOUND = np.array(
    [
        [0, 0.9, 0.1, 0.1, 0.4, 0.4],  # right
        [0, 0.8, 0.1, 0.1, 0.4, 0.4],  # the same once more: wrong
        [0, 0.7, 0.5, 0.5, 0.9, 0.9],  # right
        [1, 0.6, 0.7, 0.7, 0.9, 0.9],  # nothing there: wrong
    ]
)
DETECTED = {"DetectRes": FOUND, "Label": TRUE}
DETECTED |= {"DetectRes_lod": [np.array([0, 4])], "Label_lod": [np.array([0, 3])]}


@pytest.mark.parametrize(("way", "mean"), [("integral", (1 + 2 / 3) / 4), ("11point", 28 / 66)])
def test_found_boxes(way, mean):
    result = run("detection_map", DETECTED, class_num=3, ap_type=way)
    np.testing.assert_allclose(result["MAP"], [mean], rtol=1e-6)
    assert result["AccumPosCount"].ravel().tolist() == [2, 1, 0]
    assert result["AccumTruePos"][:, 1].tolist() == [1, 0, 1, 0]
    assert result["AccumTruePos_lod"][0].tolist() == [0, 3, 4, 4]


def test_difficult_boxes_may_not_count():
    hard = np.insert(TRUE, 1, [1, 0, 0], axis=1)
    inputs = DETECTED | {"Label": hard}
    result = run("detection_map", inputs, class_num=3, evaluate_difficult=False)
    assert result["AccumPosCount"].ravel().tolist() == [1, 1, 0]
    assert result["AccumTruePos"].tolist() == [[np.float32(0.7), 1], [np.float32(0.6), 0]]


def test_a_state_continues_only_if_there_is_one():
    first = run("detection_map", DETECTED, class_num=3)
    state = {
        "PosCount": first["AccumPosCount"],
        "TruePos": first["AccumTruePos"],
        "TruePos_lod": first["AccumTruePos_lod"],
    }
    for has_state, times in ((0, 1), (1, 2)):
        inputs = {**DETECTED, **state, "HasState": np.array([has_state], np.int32)}
        result = run("detection_map", inputs, class_num=3)
        assert result["AccumPosCount"].ravel().tolist() == [2 * times, times, 0]
        assert np.diff(result["AccumFalsePos_lod"][0]).tolist() == [3 * times, times, 0]


def test_a_state_of_other_classes_is_refused():
    state = {
        "PosCount": np.ones((2, 1), np.int32),
        "TruePos": np.zeros((0, 2), np.float32),
        "TruePos_lod": [np.zeros(3, np.int64)],
        "HasState": np.ones(1, np.int32),
    }
    with pytest.raises(ValueError, match=r"counts of 2 classes.*scores of 2: expected 3"):
        run("detection_map", {**DETECTED, **state}, class_num=3)


@pytest.mark.parametrize("levels", [1, 2, 5, 200])
def test_pairs_are_counted_without_a_matrix_of_them(levels: int) -> None:
    random = np.random.default_rng(levels)
    rows = 200
    score = random.integers(0, 9, rows).astype("float32")
    score[::17] = np.nan
    label, query = random.integers(0, levels, rows) / 2, random.integers(-2, 3, rows)
    weight = random.random(rows).astype("float32")
    first, second = np.triu_indices(rows, 1)
    pairs = (query[first] == query[second]) & (label[first] != label[second])
    first, second = first[pairs], second[pairs]
    lead = score[first] - score[second]
    ordered = lead * (label[first] - label[second]) > 0
    weights = 0.5 * (weight[first].astype("f8") + weight[second])
    expected = [weights[of].sum() for of in (ordered, ~ordered, lead == 0)]
    np.testing.assert_allclose(pair_weights(score, label, query, weight), expected, rtol=1e-9)


def test_no_rows_have_no_pairs() -> None:
    none = np.zeros(0)
    assert pair_weights(none, none, none.astype("int64"), none) == [0, 0, 0]
