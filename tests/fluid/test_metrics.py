"""Metrics in Python, their deprecated forms, and mean average precision as part of a program."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import average, evaluator, layers, metrics
from fluid.framework import default_startup_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def column(*values: float) -> Any:
    return np.array(values).reshape(-1, 1)


# ---- what every metric has ----------------------------------------------------------------------


def test_a_name_and_a_state() -> None:
    metric = metrics.Precision()
    assert str(metric) == "Precision"
    assert str(metrics.Precision("mine")) == "mine"
    metric.update(column(0.9, 0.8), column(1, 0))
    assert metric.get_config() == {"name": "Precision", "states": {"tp": 1, "fp": 1}}


def test_reset_empties_every_kind_of_state() -> None:
    class Mine(metrics.MetricBase):
        def __init__(self) -> None:
            super().__init__(None)
            self.count, self.mean, self.rows, self.other = 3, 2.5, np.ones(2), "text"
            self._hidden = 4

    metric = Mine()
    metric.reset()
    assert (metric.count, metric.mean, metric.rows.tolist(), metric.other) == (0, 0.0, [0, 0], None)
    assert metric._hidden == 4


def test_a_metric_reports_what_it_does() -> None:
    base = metrics.MetricBase("base")
    for call in (lambda: base.update(1, 2), base.eval):
        with pytest.raises(NotImplementedError, match="MetricBase must implement"):
            call()


def test_several_metrics_at_once() -> None:
    both = metrics.CompositeMetric()
    both.add_metric(metrics.Precision())
    both.add_metric(metrics.Recall())
    both.update(column(0.9, 0.8, 0.1, 0.2), column(1, 0, 1, 1))
    assert both.eval() == [0.5, 1 / 3]
    both.reset()
    assert both.eval() == [0.0, 0.0]
    with pytest.raises(
        ValueError, match="'metric' in add_metric must be MetricBase, but received str"
    ):
        both.add_metric("precision")


# ---- each of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [metrics.Precision(), metrics.Recall()])
def test_rows_are_arrays_of_one_length(metric: Any) -> None:
    with pytest.raises(ValueError, match="The 'preds' must be a numpy ndarray, not list"):
        metric.update([0.5], column(1))
    with pytest.raises(ValueError, match="The 'labels' must be a numpy ndarray, not list"):
        metric.update(column(0.5), [1])
    with pytest.raises(ValueError, match="there are 2 predictions, but 1 labels"):
        metric.update(column(0.5, 0.5), column(1))
    assert metric.eval() == 0.0


def test_accuracy_takes_what_layers_give() -> None:
    metric = metrics.Accuracy()
    metric.update(value=np.array([0.5], np.float32), weight=np.array([2]))
    metric.update(value=1.0, weight=6)
    np.testing.assert_allclose(metric.eval(), 0.875)


def test_what_accuracy_rejects() -> None:
    metric = metrics.Accuracy()
    with pytest.raises(ValueError, match="no data in Accuracy"):
        metric.eval()
    with pytest.raises(ValueError, match="'weight' must be a number, not ndarray"):
        metric.update(0.5, np.ones(2))
    with pytest.raises(ValueError, match="'weight' can not be negative, but is -1"):
        metric.update(0.5, -1)
    with pytest.raises(ValueError, match="'value' must be a number or a numpy ndarray, not str"):
        metric.update("good", 1)


def test_chunks_are_counted() -> None:
    metric = metrics.ChunkEvaluator("chunks")
    assert metric.eval() == (0, 0, 0)
    metric.update(10, 9, 8)
    metric.update(np.array([2]), np.array([3]), np.array([1]))
    precision, recall, score = metric.eval()
    np.testing.assert_allclose([precision, recall], [[9 / 12], [9 / 12]])
    np.testing.assert_allclose(score, [0.75])
    with pytest.raises(ValueError, match="'num_label_chunks' must be a number or a numpy"):
        metric.update(1, None, 1)


def test_distances_are_averaged() -> None:
    metric = metrics.EditDistance("distance")
    with pytest.raises(ValueError, match="no data in EditDistance"):
        metric.eval()
    metric.update(column(0, 3), 2)
    metric.update(column(1, 0), np.int64(2))
    assert metric.eval() == (1.0, 0.5)
    with pytest.raises(ValueError, match="'distances' must be a numpy ndarray"):
        metric.update([1.0], 1)


def test_area_continues_until_it_is_reset() -> None:
    metric = metrics.Auc("auc", num_thresholds=99)
    assert metric.eval() == 0.0
    metric.update(np.array([[0.8, 0.2], [0.2, 0.8]]), column(0, 1))
    assert metric.eval() == 1.0
    metric.update(np.array([[0.7, 0.3], [0.1, 0.9]]), column(1, 0))
    assert metric.eval() == 0.5
    metric.reset()
    assert metric.eval() == 0.0
    with pytest.raises(ValueError, match="expected probabilities from 0 to 1"):
        metric.update(np.array([[0.0, 1.5]]), column(1))
    with pytest.raises(ValueError, match="The 'predictions' must be a numpy ndarray"):
        metric.update([[0.0, 0.5]], column(1))


# ---- as part of a program -----------------------------------------------------------------------


def sequences(rows: Any, *lengths: int) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(np.asarray(rows), [list(lengths)], fluid.CPUPlace())


BOX, ELSEWHERE = [0.1, 0.1, 0.4, 0.4], [0.6, 0.6, 0.9, 0.9]
BATCHES = [
    ([[0, 0.9, *BOX], [0, 0.8, *ELSEWHERE]], [0.0, 1.0], 0.5),
    ([[0, 0.7, *BOX], [1, 0.6, *ELSEWHERE]], [0.0, 1.0], 1.0),
]
"""Found boxes, the classes of the true ones at both places, and the precision of the batch."""


def boxes(found: Any, classes: list[float], exe: fluid.Executor, fetch: list[Any]) -> list[float]:
    feed = {
        "found": sequences(np.array(found, np.float32), 2),
        "label": sequences(np.array(classes, np.float32).reshape(-1, 1), 2),
        "box": sequences(np.array([BOX, ELSEWHERE], np.float32), 2),
    }
    return [round(each.item(), 4) for each in exe.run(feed=feed, fetch_list=fetch)]


@pytest.mark.parametrize("old", [False, True])
def test_mean_average_precision(exe: fluid.Executor, old: bool) -> None:
    """Every batch, and all of them so far: recorded from 1.8.5."""
    result = layers.data("found", [6], lod_level=1)
    label, box = layers.data("label", [1], lod_level=1), layers.data("box", [4], lod_level=1)
    arguments: dict[str, Any] = {"class_num": 2, "overlap_threshold": 0.5}
    if old:
        with pytest.warns(Warning, match="DetectionMAP is deprecated"):
            metric = evaluator.DetectionMAP(result, label, box, **arguments)
    else:
        metric = metrics.DetectionMAP(result, label, box, **arguments)
    current, every = metric.get_map_var()
    exe.run(default_startup_program())
    for _ in range(2):
        metric.reset(exe)
        results = [boxes(*batch[:2], exe, [current, every]) for batch in BATCHES]
        assert results == [[0.5, 0.5], [1.0, 0.6667]]


def test_evaluators_add_up_in_the_program(exe: fluid.Executor) -> None:
    guessed = layers.data("guessed", [1], dtype="int64", lod_level=1)
    label = layers.data("label", [1], dtype="int64", lod_level=1)
    with pytest.warns(Warning, match="is deprecated"):
        chunks = evaluator.ChunkEvaluator(guessed, label, "plain", 2)
        distance = evaluator.EditDistance(guessed, label)
    for metric in (chunks, distance):
        metric.reset(exe)
    for tags in ([0, 2, 1], [0, 2, 0]):
        feed = {
            "guessed": sequences(column(*tags).astype(np.int64), 3),
            "label": sequences(column(0, 2, 1).astype(np.int64), 3),
        }
        exe.run(feed=feed, fetch_list=chunks.metrics)
    assert [each.item() for each in chunks.eval(exe)] == [0.75, 0.75, 0.75]
    np.testing.assert_allclose(np.concatenate(distance.eval(exe)), [1 / 6, 0.5], rtol=1e-6)


def test_weighted_average() -> None:
    with pytest.warns(Warning, match="WeightedAverage is deprecated"):
        mean = average.WeightedAverage()
    with pytest.raises(ValueError, match="no data to be averaged"):
        mean.eval()
    mean.add(2.0, 1)
    mean.add(np.array([4.0]), 3)
    np.testing.assert_allclose(mean.eval(), [3.5])
    with pytest.raises(ValueError, match="'weight' must be a number"):
        mean.add(1.0, "much")
