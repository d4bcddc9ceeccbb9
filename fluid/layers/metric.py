"""Metrics computed by ops of the program."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.layers.mathematics.order import topk
from fluid.recording.checks import FLOATS, check_variable_and_dtype

__all__ = ["accuracy", "auc", "detection_map", "mean_iou"]


def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
) -> Variable:
    """Fraction of rows whose label is among the `k` largest entries of `input`: [1], float32.

    `correct` and `total`, if not None, are written with the counts: [1], int32.
    """
    check_variable_and_dtype(input, "input", FLOATS, "accuracy")
    helper = LayerHelper("accuracy")
    values, indices = topk(input, k)
    share = helper.create_variable_for_type_inference("float32")
    correct, total = (
        helper.create_variable_for_type_inference("int32") if variable is None else variable
        for variable in (correct, total)
    )
    helper.append_op(
        "accuracy",
        inputs={"Out": values, "Indices": indices, "Label": label},
        outputs={"Accuracy": share, "Correct": correct, "Total": total},
    )
    return share


def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """Area under the ROC curve of all batches, of the last `slide_steps` batches, and the counts.

    `input` [N, 2] has the probabilities of both classes, `label` [N, 1] is 0 or 1. The areas are
    [1], float64. The counts, of positives and negatives for the last batches and for all, are
    persistable; fill them with 0 to reset. `topk` and the curve "PR" have no effect, as in Paddle
    1.8.

    >>> import fluid
    >>> clicks, click = fluid.data("clicks", [None, 2]), fluid.data("click", [None, 1], "int64")
    >>> every, last, counts = auc(clicks, click)
    >>> every.shape, [each.shape for each in counts]
    ((1,), [(8193,), (8193,), (1, 4096), (1, 4096)])
    """
    check_variable_and_dtype(input, "input", ("float32", "float64"), "auc")
    check_variable_and_dtype(label, "label", ("int32", "int64"), "auc")
    helper = LayerHelper("auc")
    every, batch = (helper.create_variable_for_type_inference("float64") for _ in range(2))
    bins = num_thresholds + 1
    windowed = [_create_counts(helper, [(1 + slide_steps) * bins + 1]) for _ in range(2)]
    accumulated = [_create_counts(helper, [1, bins]) for _ in range(2)]
    for counts in (*windowed, *accumulated):
        helper.set_variable_initializer(counts, Constant(0.0, force_cpu=False))
    for area, (positive, negative), steps in (
        (batch, windowed, slide_steps),
        (every, accumulated, 0),
    ):
        helper.append_op(
            "auc",
            inputs={"Predict": input, "Label": label, "StatPos": positive, "StatNeg": negative},
            outputs={"AUC": area, "StatPosOut": positive, "StatNegOut": negative},
            attrs={"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps},
        )
    return every, batch, [*windowed, *accumulated]


def _create_counts(helper: LayerHelper, shape: list[int]) -> Variable:
    return helper.create_global_variable(persistable=True, dtype="int64", shape=shape)


def mean_iou(
    input: Variable, label: Variable, num_classes: int
) -> tuple[Variable, Variable, Variable]:
    """Mean over classes of intersection / union of predicted and true pixels.

    Returns it ([1], float32), and the wrong and the correct counts by class ([num_classes], int32).
    """
    check_variable_and_dtype(input, "Predictions", ("int32", "int64"), "mean_iou")
    check_variable_and_dtype(label, "Labels", ("int32", "int64"), "mean_iou")
    helper = LayerHelper("mean_iou")
    mean = helper.create_variable_for_type_inference("float32")
    wrong, correct = (helper.create_variable_for_type_inference("int32") for _ in range(2))
    helper.append_op(
        "mean_iou",
        inputs={"Predictions": input, "Labels": label},
        outputs={"OutMeanIou": mean, "OutWrong": wrong, "OutCorrect": correct},
        attrs={"num_classes": num_classes},
    )
    return mean, wrong, correct


def detection_map(
    detect_res: Variable,
    label: Variable,
    class_num: int,
    background_label: int = 0,
    overlap_threshold: float = 0.3,
    evaluate_difficult: bool = True,
    has_state: Variable | None = None,
    input_states: Sequence[Variable] | None = None,
    out_states: Sequence[Variable] | None = None,
    ap_version: str = "integral",
) -> Variable:
    """Mean average precision of detected boxes: [1], float32.

    `detect_res` [found, 6] has class, score and box, `label` [true, 6] class, difficult flag and
    box, or [true, 5] without the flag; both have one LoD sequence per image. `input_states` are the
    counts of true boxes and the scores of true and false positives of previous batches, used if
    `has_state` is not 0; `out_states` are written with this batch included. `background_label` has
    no effect, as in 1.8.5. `fluid.metrics.DetectionMAP` manages the states itself.
    """
    helper = LayerHelper("detection_map")
    kinds = ("float32", "int32", "float32", "float32")
    mean, *states = (helper.create_variable_for_type_inference(kind) for kind in kinds)
    before = dict(zip(("PosCount", "TruePos", "FalsePos"), input_states or (), strict=False))
    inputs = {"DetectRes": detect_res, "Label": label, "HasState": has_state, **before}
    slots = ("AccumPosCount", "AccumTruePos", "AccumFalsePos")
    helper.append_op(
        "detection_map",
        inputs={slot: var for slot, var in inputs.items() if var is not None},
        outputs={"MAP": mean, **dict(zip(slots, out_states or states, strict=True))},
        attrs={
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_type": ap_version,
            "class_num": class_num,
        },
    )
    return mean
