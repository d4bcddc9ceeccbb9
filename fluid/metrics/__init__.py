"""Metrics in Python, which accumulate fetched values batch by batch.

For example::

    accuracy = fluid.metrics.Accuracy()
    for batch in reader():
        (share,) = exe.run(feed=..., fetch_list=[accuracy_of_batch])
        accuracy.update(value=share, weight=len(batch))
    print(accuracy.eval())
"""

from __future__ import annotations

import copy
from typing import Annotated, Any, TypeAlias, cast

import numpy as np

from compiler.ir.opdef import find
from compiler.ir.types import Array
from fluid.metrics.detection_map import DetectionMAP
from fluid.recording.arguments import UNCHECKED, typed

__all__ = [
    "Accuracy",
    "Auc",
    "ChunkEvaluator",
    "CompositeMetric",
    "DetectionMAP",
    "EditDistance",
    "MetricBase",
    "Precision",
    "Recall",
]

Number: TypeAlias = Any
"""A Python or NumPy number, or an array of them: what they compute is typed by NumPy only."""
Values: TypeAlias = Annotated[Array, UNCHECKED]
"""An array, which the metric checks."""


def _check_array(value: object, name: str) -> None:
    if not isinstance(value, np.ndarray | np.generic):
        raise ValueError(f"The '{name}' must be a numpy ndarray, not {type(value).__name__}")


def is_number(value: object) -> bool:
    """Return whether a value is a scalar: a Python or NumPy number, or an array of shape [1]."""
    if isinstance(value, np.ndarray):
        return cast(Array, value).shape == (1,)
    return isinstance(value, int | float | np.number)


def _check_number(value: object, name: str) -> None:
    if not is_number(value):
        raise ValueError(f"The '{name}' must be a number, not {type(value).__name__}")


def _check_number_or_array(value: object, name: str) -> None:
    if not is_number(value) and not isinstance(value, np.ndarray):
        kind = type(value).__name__
        raise ValueError(f"The '{name}' must be a number or a numpy ndarray, not {kind}")


@typed
class MetricBase:
    """Base class of metrics, with a name (default: the class name) and state (public
    attributes).
    """

    def __init__(self, name: str | None) -> None:
        self._name = str(name) if name is not None else type(self).__name__

    def __str__(self) -> str:
        """Return the name."""
        return self._name

    def _states(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def reset(self) -> None:
        """Reset the state: numbers become 0, arrays zeros, everything else None."""
        for name, value in self._states().items():
            setattr(self, name, _zero_like(value))

    def get_config(self) -> dict[str, object]:
        """Return the name and a copy of the state, as `{"name": …, "states": {…}}`."""
        return {"name": self._name, "states": copy.deepcopy(self._states())}

    def update(self, preds: Values, labels: Values) -> None:
        """Accumulate a batch; NotImplementedError unless overridden."""
        raise NotImplementedError(f"{type(self).__name__} must implement update")

    def eval(self) -> object:
        """Return the metric over all batches; NotImplementedError unless overridden."""
        raise NotImplementedError(f"{type(self).__name__} must implement eval")


def _zero_like(value: object) -> object:
    if isinstance(value, int):
        return 0
    if isinstance(value, float):
        return 0.0
    is_array = isinstance(value, np.ndarray | np.generic)
    return np.zeros_like(cast(Array, value)) if is_array else None


@typed
class CompositeMetric(MetricBase):
    """Several metrics of the same predictions."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric; ArgumentError for anything else."""
        self._metrics.append(metric)

    def reset(self) -> None:
        """Reset every metric."""
        super().reset()
        for metric in self._metrics:
            metric.reset()

    def update(self, preds: Values, labels: Values) -> None:
        """Update every metric with a batch."""
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[object]:
        """Return the value of each metric, in the order they were added."""
        return [metric.eval() for metric in self._metrics]


def _binary_predictions(preds: Values, labels: Values) -> tuple[Array, Array]:
    """Return predictions rounded to 0 or 1, and labels; ValueError if the sizes differ."""
    _check_array(preds, "preds")
    _check_array(labels, "labels")
    guessed, true = np.rint(preds).astype(np.int32).reshape(-1), np.reshape(labels, -1)
    if guessed.size != true.size:
        raise ValueError(f"there are {guessed.size} predictions, but {true.size} labels")
    return guessed, true


@typed
class Precision(MetricBase):
    """Precision of binary classification: the fraction of positive predictions that are correct.

    >>> metric = Precision()
    >>> metric.update(preds=np.array([0.9, 0.6, 0.2]), labels=np.array([1, 0, 1]))
    >>> metric.eval()
    0.5
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fp = 0

    def update(self, preds: Values, labels: Values) -> None:
        """Accumulate probabilities of class 1 [N, 1] and labels [N, 1]."""
        guessed, true = _binary_predictions(preds, labels)
        right = int(np.sum((guessed == 1) & (true == 1)))
        self.tp += right
        self.fp += int(np.sum(guessed == 1)) - right

    def eval(self) -> float:
        """Return the precision; 0.0 without positive predictions."""
        claimed = self.tp + self.fp
        return self.tp / claimed if claimed else 0.0


@typed
class Recall(MetricBase):
    """Recall of binary classification: the fraction of positive labels that were predicted."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        self.fn = 0

    def update(self, preds: Values, labels: Values) -> None:
        """Accumulate probabilities of class 1 [N, 1] and labels [N, 1]."""
        guessed, true = _binary_predictions(preds, labels)
        right = int(np.sum((guessed == 1) & (true == 1)))
        self.tp += right
        self.fn += int(np.sum(true == 1)) - right

    def eval(self) -> float:
        """Return the recall; 0.0 without positive labels."""
        wanted = self.tp + self.fn
        return self.tp / wanted if wanted else 0.0


@typed
class Accuracy(MetricBase):
    """Weighted mean of the accuracies of batches.

    >>> metric = Accuracy()
    >>> metric.update(value=0.5, weight=10)
    >>> metric.update(value=1.0, weight=30)
    >>> metric.eval()
    0.875
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value: Number = 0.0
        self.weight: Number = 0.0

    # The parameters of `update` and their names are Paddle's.
    def update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, value: Number, weight: Number
    ) -> None:
        """Accumulate a batch's result of `layers.accuracy` and its weight (usually the batch
        size).
        """
        _check_number_or_array(value, "value")
        _check_number(weight, "weight")
        if weight < 0:
            raise ValueError(f"The 'weight' can not be negative, but is {weight}")
        self.value += value * weight
        self.weight += weight

    def eval(self) -> object:
        """Return the weighted mean; ValueError without batches."""
        if self.weight == 0:
            raise ValueError(
                "There is no data in Accuracy: update it with results of layers.accuracy"
            )
        return self.value / self.weight


@typed
class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks, from the counts of `layers.chunk_eval`."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks: Number = 0
        self.num_label_chunks: Number = 0
        self.num_correct_chunks: Number = 0

    # The parameters of `update` and their names are Paddle's.
    def update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, num_infer_chunks: Number, num_label_chunks: Number, num_correct_chunks: Number
    ) -> None:
        """Accumulate the counts of a batch: numbers or arrays [1]."""
        _check_number_or_array(num_infer_chunks, "num_infer_chunks")
        _check_number_or_array(num_label_chunks, "num_label_chunks")
        _check_number_or_array(num_correct_chunks, "num_correct_chunks")
        self.num_infer_chunks += num_infer_chunks
        self.num_label_chunks += num_label_chunks
        self.num_correct_chunks += num_correct_chunks

    def eval(self) -> tuple[Number, Number, Number]:
        """Return precision, recall and F1; 0 where the denominator is 0."""
        correct = self.num_correct_chunks
        precision = correct / self.num_infer_chunks if self.num_infer_chunks else 0
        recall = correct / self.num_label_chunks if self.num_label_chunks else 0
        score = 2 * precision * recall / (precision + recall) if correct else 0
        return precision, recall, score


@typed
class EditDistance(MetricBase):
    """Mean edit distance and sequence error rate, from `layers.edit_distance`."""

    def __init__(self, name: str | None) -> None:
        super().__init__(name)
        self.total_distance: Number = 0.0
        self.seq_num: Number = 0
        self.instance_error: Number = 0

    # The parameters of `update` and their names are Paddle's.
    def update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, distances: Values, seq_num: Number
    ) -> None:
        """Accumulate the distances of a batch [N, 1] and its number of sequences."""
        _check_array(distances, "distances")
        _check_number(seq_num, "seq_num")
        self.seq_num += seq_num
        self.instance_error += seq_num - np.sum(distances == 0)
        self.total_distance += np.sum(distances)

    def eval(self) -> tuple[Number, Number]:
        """Return the mean distance and the fraction of distances above 0; ValueError without
        batches.
        """
        if self.seq_num == 0:
            raise ValueError(
                "There is no data in EditDistance: update it with results of layers.edit_distance"
            )
        return self.total_distance / self.seq_num, self.instance_error / float(self.seq_num)


@typed
class Auc(MetricBase):
    """Area under the ROC curve, from a histogram of scores with `num_thresholds` + 1 bins.

    `curve` has no effect, as in Paddle 1.8.

    >>> metric = Auc("auc")
    >>> scores = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    >>> metric.update(preds=scores, labels=np.array([[0], [1], [1], [0]]))
    >>> metric.eval()
    0.75
    """

    def __init__(self, name: str | None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        super().__init__(name)
        if num_thresholds < 1:
            raise ValueError(f"num_thresholds of Auc must be at least 1, not {num_thresholds}")
        self._op = find("auc")({"curve": curve, "num_thresholds": num_thresholds, "slide_steps": 0})
        self._curve, self._num_thresholds = curve, num_thresholds
        self._stat_pos, self._stat_neg = ([0] * (num_thresholds + 1) for _ in range(2))

    def reset(self) -> None:
        """Reset the histograms (Paddle 1.8 does not)."""
        super().reset()
        self._stat_pos, self._stat_neg = ([0] * (self._num_thresholds + 1) for _ in range(2))

    def update(self, preds: Values, labels: Values) -> None:
        """Accumulate probabilities of both classes [N, 2] and labels [N, 1].

        Raises ValueError for a probability outside [0, 1].
        """
        _check_array(labels, "labels")
        _check_array(preds, "predictions")
        true = (np.reshape(labels, (-1, 1)) != 0).astype(np.int64)
        counts = self._accumulate(np.asarray(preds)[:, :2], true)
        self._stat_pos = counts["StatPosOut"].reshape(-1).tolist()
        self._stat_neg = counts["StatNegOut"].reshape(-1).tolist()

    def eval(self) -> float:
        """Return the area; 0.0 if all labels are of one class."""
        nothing = np.zeros((0, 2)), np.zeros((0, 1), np.int64)
        return float(self._accumulate(*nothing)["AUC"][0])

    @staticmethod
    def trapezoid_area(x1: float, x2: float, y1: float, y2: float) -> float:
        """Return the area below the line from (x1, y1) to (x2, y2).

        >>> Auc.trapezoid_area(3, 1, 2, 3)
        5.0
        """
        return abs(x1 - x2) * (y1 + y2) / 2.0

    def _accumulate(self, scores: Array, labels: Array) -> dict[str, Array]:
        statistics = {"StatPos": self._stat_pos, "StatNeg": self._stat_neg}
        counts = {
            slot: np.array(stat, np.int64).reshape(1, -1) for slot, stat in statistics.items()
        }
        return self._op.evaluate({"Predict": scores, "Label": labels, **counts})
