"""Losses for very many classes: sampled and hierarchical."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fluid.framework import Variable
from fluid.initializer import NumpyArrayInitializer
from fluid.layer_helper import LayerHelper
from fluid.param_attr import ParamAttr, ParamAttrLike
from fluid.recording.annotations import Array
from fluid.recording.checks import SizesError, check_variable_and_dtype

__all__ = ["hsigmoid", "nce", "sampled_softmax_with_cross_entropy"]

_SAMPLERS = ("uniform", "log_uniform", "custom_dist")
_FULL_PRECISION = ("float32", "float64")


def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Sequence[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Noise contrastive estimation loss: [N, D] and [N, trues] → [N, 1].

    `num_neg_samples` (default 10) negative classes are drawn by the sampler "uniform",
    "log_uniform" (low indices are frequent), or "custom_dist" with the probabilities `custom_dist`.
    A `seed` of 0 draws new samples in every step, unless the program has a seed. The weight is
    [num_total_classes, D], its gradient sparse if `is_sparse`. Raises ValueError for another
    sampler or a missing distribution.

    >>> import fluid
    >>> words, after = fluid.data("words", [None, 8]), fluid.data("after", [None, 1], "int64")
    >>> nce(words, after, 1000, num_neg_samples=5).shape
    (-1, 1)
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "nce")
    check_variable_and_dtype(label, "label", ("int64",), "nce")
    if sampler not in _SAMPLERS:
        raise ValueError(f"sampler of nce must be one of {_SAMPLERS}, not {sampler!r}")
    helper = LayerHelper("nce", param_attr=param_attr, bias_attr=bias_attr, name=name)
    inputs = _weights(helper, "Weight", num_total_classes, input)
    inputs |= {"Input": input, "Label": label, "SampleWeight": sample_weight}
    if sampler == "custom_dist":
        inputs |= custom_distribution(helper, custom_dist, num_total_classes)
    drawn = 10 if num_neg_samples is None else int(num_neg_samples)
    cost, logits = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    labels = helper.create_variable_for_type_inference(label.dtype)
    helper.append_op(
        "nce",
        inputs=inputs,
        outputs={"Cost": cost, "SampleLogits": logits, "SampleLabels": labels},
        attrs={
            "num_total_classes": int(num_total_classes),
            "num_neg_samples": drawn,
            "seed": seed or helper.main_program.fresh_seed(),
            "sampler": _SAMPLERS.index(sampler),
            "is_sparse": is_sparse,
            "remote_prefetch": is_sparse,
        },
    )
    return cost / (drawn + 1)


def _weights(
    helper: LayerHelper, slot: str, rows: int, input: Variable
) -> dict[str, Variable | None]:
    """Create a weight with a row per class, and a bias, None if disabled."""
    shape = [rows, input.shape[1]]
    weight = helper.create_parameter(helper.param_attr, shape, input.dtype)
    bias = helper.create_parameter(helper.bias_attr, [rows, 1], input.dtype, is_bias=True)
    return {slot: weight, "Bias": bias}


def custom_distribution(
    helper: LayerHelper, probabilities: Sequence[float] | None, classes: int
) -> dict[str, Variable]:
    """Create parameters for a distribution and its alias table."""
    if probabilities is None or len(probabilities) != classes:
        actual = "None" if probabilities is None else f"{len(probabilities)} numbers"
        raise SizesError(f"custom_dist of nce must have {classes} probabilities, not {actual}")
    alias, thresholds = alias_table(probabilities)
    arrays = {
        "CustomDistProbs": np.array(probabilities, np.float32),
        "CustomDistAlias": np.array(alias, np.int32),
        "CustomDistAliasProbs": np.array(thresholds, np.float32),
    }
    return {slot: _constant(helper, array) for slot, array in arrays.items()}


def _constant(helper: LayerHelper, array: Array) -> Variable:
    start = NumpyArrayInitializer(array)
    parameter = helper.create_parameter(
        ParamAttr(), array.shape, array.dtype, default_initializer=start
    )
    parameter.stop_gradient = True
    return parameter


def alias_table(probabilities: Sequence[float]) -> tuple[list[int], list[float]]:
    """Alias table (Walker): draw a class uniformly, keep it with its probability, else use its
    alias.

    >>> alias_table([0.5, 0.25, 0.25])
    ([-1, 0, 0], [1.0, 0.75, 0.75])
    """
    scaled = [probability * len(probabilities) for probability in probabilities]
    alias, thresholds = [-1] * len(probabilities), [1.0] * len(probabilities)
    large = [place for place, share in enumerate(scaled) if share > 1.0]
    small = [place for place, share in enumerate(scaled) if share < 1.0]
    while large and small:
        giver, taker = large.pop(0), small.pop(0)
        alias[taker], thresholds[taker] = giver, scaled[taker]
        scaled[giver] += scaled[taker] - 1.0
        rest = large if scaled[giver] > 1.0 else small
        if scaled[giver] != 1.0:
            rest.append(giver)
    return alias, thresholds


def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Hierarchical sigmoid loss along each row's path in a binary tree: [N, D] → [N, 1].

    The tree is the complete binary one over `num_classes`; with `is_custom` paths are explicit:
    `path_table` [N, max length] has the inner nodes and `path_code` the branch bits, -1 beyond the
    end, and `num_classes` is the number of inner nodes. Raises ValueError for inconsistent
    arguments.
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "hsigmoid")
    check_variable_and_dtype(label, "label", ("int64",), "hsigmoid")
    _check_tree(num_classes, path_table, path_code, is_custom)
    is_sparse = is_sparse and is_custom
    helper = LayerHelper(
        "hierarchical_sigmoid", param_attr=param_attr, bias_attr=bias_attr, name=name
    )
    cost, scores = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    forks = num_classes if is_custom else num_classes - 1
    inputs = _weights(helper, "W", forks, input) | {"X": input, "Label": label}
    inputs |= {"PathTable": path_table, "PathCode": path_code}
    helper.append_op(
        "hierarchical_sigmoid",
        inputs=inputs,
        outputs={"Out": cost, "PreOut": scores, "W_Out": inputs["W"]},
        attrs={
            "num_classes": num_classes,
            "is_sparse": is_sparse,
            "remote_prefetch": is_sparse,
        },
    )
    return cost


def _check_tree(
    num_classes: int | None, table: Variable | None, code: Variable | None, is_custom: bool
) -> None:
    if not is_custom and (num_classes is None or num_classes < 2):
        raise ValueError(f"num_classes of hsigmoid must be at least 2, not {num_classes}")
    if not is_custom and (table is not None or code is not None):
        raise ValueError("hsigmoid takes path_table and path_code only with is_custom=True")
    if is_custom and (table is None or code is None or num_classes is None):
        raise ValueError("hsigmoid with is_custom=True needs path_table, path_code, num_classes")


def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Softmax cross entropy over the label and `num_samples` sampled classes only: [N, 1].

    `logits` are [N, classes], `label` [N, num_true]. The samples, distinct and log-uniform, are
    shared by all rows; `remove_accidental_hits` masks those equal to the label.
    `use_customized_samples` takes samples and their probabilities [N, num_true + num_samples].
    """
    helper = LayerHelper("sample_logits")
    make = helper.create_variable_for_type_inference
    samples, probabilities = customized_samples, customized_probabilities
    if not use_customized_samples:
        samples, probabilities = make("int64"), make(logits.dtype)
    sampled, sampled_labels = make(logits.dtype), make("int64")
    targets, logits_dim, labels_dim = (make(logits.dtype) for _ in range(3))
    helper.append_op(
        "sample_logits",
        inputs={
            "Logits": logits, "Labels": label, "CustomizedSamples": customized_samples,
            "CustomizedProbabilities": customized_probabilities,
        },
        outputs={
            "Samples": samples, "Probabilities": probabilities, "SampledLabels": sampled_labels,
            "SampledLogits": sampled, "LogitsDim": logits_dim, "LabelsDim": labels_dim,
        },
        attrs={
            "use_customized_samples": use_customized_samples,
            "uniq": True,
            "remove_accidental_hits": remove_accidental_hits,
            "num_samples": num_samples,
            "seed": seed or helper.main_program.fresh_seed(),
        },
    )  # fmt: skip
    return _soft_label_loss(helper, sampled, sampled_labels, targets, num_samples + 1) / num_true


def _soft_label_loss(
    helper: LayerHelper, logits: Variable, label: Variable, targets: Variable, classes: int
) -> Variable:
    """Softmax cross entropy [N, 1] of logits against labels, which go to `targets` as one-hot."""
    make = helper.create_variable_for_type_inference
    loss, softmax = make(logits.dtype), make(logits.dtype)
    helper.append_op(
        "one_hot", inputs={"X": label}, outputs={"Out": targets}, attrs={"depth": classes}
    )
    helper.append_op(
        "softmax_with_cross_entropy",
        inputs={"Logits": logits, "Label": targets},
        outputs={"Softmax": softmax, "Loss": loss},
        attrs={"soft_label": True, "ignore_index": False, "numeric_stable_mode": False},
    )
    return loss
