"""Loss functions: classification, ranking and regression."""

from __future__ import annotations

from fluid.framework import Variable
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.control.logic import equal
from fluid.layers.mathematics.linalg import matmul
from fluid.layers.mathematics.reductions import reduce_mean, reduce_sum
from fluid.layers.mathematics.shapes import expand, transpose
from fluid.layers.nn import reshape
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import DTypeLike
from fluid.recording.checks import FLOATS, check_type, check_variable_and_dtype

__all__ = [
    "bpr_loss",
    "center_loss",
    "cross_entropy",
    "dice_loss",
    "huber_loss",
    "kldiv_loss",
    "label_smooth",
    "log_loss",
    "margin_rank_loss",
    "mse_loss",
    "npair_loss",
    "rank_loss",
    "sigmoid_cross_entropy_with_logits",
    "smooth_l1",
    "softmax_with_cross_entropy",
    "square_error_cost",
    "teacher_student_sigmoid_loss",
]

_IGNORED = -100
_FULL_PRECISION = ("float32", "float64")


# ---- classes ------------------------------------------------------------------------------------


def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = _IGNORED
) -> Variable:
    """Cross entropy of probabilities `input` and `label`: [N, classes] → [N, 1].

    Labels are class indices [N, 1], with loss 0 at `ignore_index`; soft labels are probabilities
    [N, classes].

    >>> import fluid
    >>> shares, word = fluid.data("shares", [None, 4]), fluid.data("word", [None, 1], "int64")
    >>> cross_entropy(shares, word).shape
    (-1, 1)
    """
    inputs = {"X": input, "Label": label}
    if soft_label:
        check_variable_and_dtype(input, "input", FLOATS, "cross_entropy")
        attrs = {"soft_label": True, "ignore_index": ignore_index}
        return LayerHelper("cross_entropy").append_result("cross_entropy", inputs, attrs, slot="Y")
    return cross_entropy2(input, label, ignore_index)


def cross_entropy2(input: Variable, label: Variable, ignore_index: int = _IGNORED) -> Variable:
    """`cross_entropy` for class indices."""
    inputs = {"X": input, "Label": label}
    check_variable_and_dtype(input, "input", FLOATS, "cross_entropy2")
    helper = LayerHelper("cross_entropy2", input=input)
    dtype = helper.input_dtype()
    loss, shape, match = (helper.create_variable_for_type_inference(dtype) for _ in range(3))
    helper.append_op(
        "cross_entropy2",
        inputs=inputs,
        outputs={"Y": loss, "XShape": shape, "MatchX": match},
        attrs={"ignore_index": ignore_index},
    )
    return loss


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = _IGNORED,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Variable | tuple[Variable, Variable]:
    """Cross entropy of softmax(`logits`) along `axis`; also the softmax if `return_softmax`."""
    helper = LayerHelper("softmax_with_cross_entropy", input=logits)
    dtype = helper.input_dtype()
    softmax, loss = (helper.create_variable_for_type_inference(dtype) for _ in range(2))
    helper.append_op(
        "softmax_with_cross_entropy",
        inputs={"Logits": logits, "Label": label},
        outputs={"Softmax": softmax, "Loss": loss},
        attrs={
            "soft_label": soft_label,
            "ignore_index": ignore_index,
            "numeric_stable_mode": numeric_stable_mode,
            "axis": axis,
        },
    )
    return (loss, softmax) if return_softmax else loss


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> Variable:
    """Return `(1 - epsilon) * label + epsilon * prior_dist` (default: the uniform distribution).

    `label` [N, classes] holds probabilities and receives no gradient. Raises ValueError unless
    `epsilon` is in [0, 1].
    """
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"epsilon of label_smooth must be from 0 to 1, not {epsilon}")
    check_variable_and_dtype(label, "label", _FULL_PRECISION, "label_smooth")
    label.stop_gradient = True
    inputs = {"X": label, "PriorDist": prior_dist}
    return append_simple_op(
        "label_smooth", inputs, {"epsilon": float(epsilon)}, name=name, dtype=dtype
    )


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Bayesian personalized ranking loss: [N, classes] → [N, 1].

    It is the mean of `log(1 + exp(score - score of the label))` over the other classes.
    """
    check_variable_and_dtype(input, "input", FLOATS, "bpr_loss")
    helper = LayerHelper("bpr_loss", name=name)
    return helper.append_result("bpr_loss", {"X": input, "Label": label}, slot="Y")


def center_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    alpha: float | Variable,
    param_attr: ParamAttrLike,
    update_center: bool = True,
) -> Variable:
    """Half the squared distance of each row [N, D] to the center of its class: [N, 1].

    The centers are a parameter [num_classes, D] without gradient; if `update_center`, the op itself
    updates them by `alpha` times the mean difference to their rows. Raises TypeError if `alpha` is
    neither a float nor a variable.
    """
    check_type(alpha, "alpha", (float, Variable), "center_loss")
    helper = LayerHelper("center_loss", input=input, param_attr=param_attr)
    dtype = helper.input_dtype()
    centers = helper.create_parameter(
        param_attr, [num_classes, input.shape[1]], dtype, stop_gradient=True
    )
    rate = alpha if isinstance(alpha, Variable) else _center_rate(helper, alpha)
    difference, loss = (helper.create_variable_for_type_inference(dtype) for _ in range(2))
    helper.append_op(
        "center_loss",
        inputs={"X": input, "Label": label, "Centers": centers, "CenterUpdateRate": rate},
        outputs={"SampleCenterDiff": difference, "Loss": loss, "CentersOut": centers},
        attrs={"cluster_num": num_classes, "need_update": update_center},
    )
    return loss


def _center_rate(helper: LayerHelper, alpha: float) -> Variable:
    """Return the rate as a variable that the main program fills in each step."""
    block = helper.main_program.current_block()
    return block.create_var(
        name="centerloss_alpha",
        shape=[1],
        dtype="float32",
        persistable=True,
        stop_gradient=True,
        initializer=Constant(alpha),
    )


# ---- binary labels ------------------------------------------------------------------------------


def log_loss(
    input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None
) -> Variable:
    """Return `-label * log(input + epsilon) - (1 - label) * log(1 - input + epsilon)`, [N, 1]."""
    check_variable_and_dtype(input, "input", ("float32",), "log_loss")
    check_variable_and_dtype(label, "label", ("float32",), "log_loss")
    helper = LayerHelper("log_loss", name=name)
    inputs = {"Predicted": input, "Labels": label}
    return helper.append_result("log_loss", inputs, {"epsilon": epsilon}, slot="Loss")


def sigmoid_cross_entropy_with_logits(
    x: Variable,
    label: Variable,
    ignore_index: int = _IGNORED,
    name: str | None = None,
    normalize: bool = False,
) -> Variable:
    """Elementwise cross entropy of `sigmoid(x)` and probabilities `label`.

    It is 0 where the label is `ignore_index`; `normalize` divides by the number of other elements.
    """
    check_variable_and_dtype(x, "input", FLOATS, "sigmoid_cross_entropy_with_logits")
    return append_simple_op(
        "sigmoid_cross_entropy_with_logits",
        {"X": x, "Label": label},
        {"ignore_index": ignore_index, "normalize": normalize},
        name=name,
    )


def teacher_student_sigmoid_loss(
    input: Variable,
    label: Variable,
    soft_max_up_bound: float = 15.0,
    soft_max_lower_bound: float = -15.0,
) -> Variable:
    """Joint loss of a click and a teacher's score, both encoded in `label`: [N, 1] each.

    A label is -2 for no click, -1 for a click, both without a score; or a score from 0 to 1, plus 1
    for a click. Inputs at or beyond the bounds receive no gradient.
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "teacher_student_sigmoid_loss")
    check_variable_and_dtype(label, "label", _FULL_PRECISION, "teacher_student_sigmoid_loss")
    bounds = {
        "soft_max_up_bound": float(soft_max_up_bound),
        "soft_max_lower_bound": float(soft_max_lower_bound),
    }
    helper = LayerHelper("teacher_student_sigmoid_loss")
    inputs = {"X": input, "Label": label}
    return helper.append_result("teacher_student_sigmoid_loss", inputs, bounds, slot="Y")


# ---- ranking losses -----------------------------------------------------------------------------


def rank_loss(
    label: Variable, left: Variable, right: Variable, name: str | None = None
) -> Variable:
    """RankNet loss, `log(1 + exp(o)) - label * o` with `o = left - right`: [N, 1] each.

    `label` is the probability that `left` ranks before `right`.
    """
    for variable, argument in ((label, "label"), (left, "left"), (right, "right")):
        check_variable_and_dtype(variable, argument, ("float32",), "rank_loss")
    inputs = {"Label": label, "Left": left, "Right": right}
    return append_simple_op("rank_loss", inputs, name=name, dtype="float32")


def margin_rank_loss(
    label: Variable,
    left: Variable,
    right: Variable,
    margin: float = 0.1,
    name: str | None = None,
) -> Variable:
    """Return `max(0, margin - label * (left - right))`; label 1 ranks `left` first, -1 `right`."""
    for variable, argument in ((label, "label"), (left, "left"), (right, "right")):
        check_variable_and_dtype(variable, argument, ("float32",), "margin_rank_loss")
    helper = LayerHelper("margin_rank_loss", name=name)
    loss, activated = (helper.create_variable_for_type_inference(left.dtype) for _ in range(2))
    helper.append_op(
        "margin_rank_loss",
        inputs={"Label": label, "X1": left, "X2": right},
        outputs={"Out": loss, "Activated": activated},
        attrs={"margin": margin},
    )
    return loss


# ---- regression ---------------------------------------------------------------------------------


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """Return `(input - label) ** 2` elementwise."""
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "square_error_cost")
    check_variable_and_dtype(label, "label", _FULL_PRECISION, "square_error_cost")
    helper = LayerHelper("square_error_cost")
    difference = helper.append_result("elementwise_sub", {"X": input, "Y": label})
    return helper.append_result("square", {"X": difference})


def mse_loss(input: Variable, label: Variable) -> Variable:
    """Return the mean of `(input - label) ** 2`: [1]."""
    return reduce_mean(square_error_cost(input, label))


def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Huber loss: half the squared error up to `delta`, linear with slope `delta` above."""
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "huber_loss")
    check_variable_and_dtype(label, "label", _FULL_PRECISION, "huber_loss")
    helper = LayerHelper("huber_loss")
    residual, loss = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    helper.append_op(
        "huber_loss",
        inputs={"X": input, "Y": label},
        outputs={"Out": loss, "Residual": residual},
        attrs={"delta": delta},
    )
    return loss


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Smooth L1 loss summed per row, quadratic below `1 / sigma ** 2`: [N, ...] → [N, 1].

    `inside_weight` multiplies the difference, `outside_weight` the loss; both or neither are set.
    """
    check_variable_and_dtype(x, "X", _FULL_PRECISION, "smooth_l1_loss")
    check_variable_and_dtype(y, "Y", _FULL_PRECISION, "smooth_l1_loss")
    helper = LayerHelper("smooth_l1_loss")
    difference, loss = (helper.create_variable_for_type_inference(x.dtype) for _ in range(2))
    weights = {"InsideWeight": inside_weight, "OutsideWeight": outside_weight}
    helper.append_op(
        "smooth_l1_loss",
        inputs={"X": x, "Y": y, **weights},
        outputs={"Diff": difference, "Out": loss},
        attrs={"sigma": 1.0 if sigma is None else sigma},
    )
    return loss


def kldiv_loss(
    x: Variable, target: Variable, reduction: str = "mean", name: str | None = None
) -> Variable:
    """KL divergence of `target` from log-probabilities `x`: `target * (log(target) - x)`.

    `reduction` is "none" for every element, or "sum", "mean" or "batchmean" for [1].

    >>> import fluid
    >>> logs, target = fluid.data("logs", [None, 4]), fluid.data("target", [None, 4])
    >>> kldiv_loss(logs, target).shape, kldiv_loss(logs, target, "none").shape
    ((1,), (-1, 4))
    """
    check_variable_and_dtype(x, "x", _FULL_PRECISION, "kldiv_loss")
    check_variable_and_dtype(target, "target", _FULL_PRECISION, "kldiv_loss")
    check_type(reduction, "reduction", str, "kldiv_loss")
    helper = LayerHelper("kldiv_loss", name=name)
    inputs, attrs = {"X": x, "Target": target}, {"reduction": reduction}
    return helper.append_result("kldiv_loss", inputs, attrs, slot="Loss")


# ---- overlap, pairs of embeddings ---------------------------------------------------------------


def dice_loss(
    input: Variable, label: Variable, epsilon: float = 1e-5, name: str | None = None
) -> Variable:
    """Return 1 - the Dice coefficient of predicted and true pixels, averaged over images: [1].

    `input` [N, ..., classes] holds probabilities, `label` [N, ..., 1] class indices.
    """
    classes, inner = input.shape[-1], list(range(1, len(input.shape)))
    true = append_simple_op("one_hot", {"X": label}, {"depth": classes}, dtype="float32")
    true.stop_gradient = True
    shared = reduce_sum(input * true, dim=inner)
    every = reduce_sum(input, dim=inner) + reduce_sum(true, dim=inner)
    return reduce_mean(1 - shared * 2 / (every + epsilon))


def npair_loss(
    anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002
) -> Variable:
    """N-pair loss of embeddings: [1].

    `anchor` and `positive` are [N, D], `labels` [N]; N must be static. It is the cross entropy of
    all inner products against equality of labels, plus `l2_reg / 4` times the mean squared norms.
    """
    for variable, argument in ((anchor, "anchor"), (positive, "positive")):
        check_variable_and_dtype(variable, argument, _FULL_PRECISION, "npair_loss")
    check_variable_and_dtype(labels, "labels", (*_FULL_PRECISION, "int64"), "npair_loss")
    count = labels.shape[0]
    column = reshape(labels, shape=[count, 1])
    square_of_labels = expand(column, expand_times=[1, count])
    same = equal(square_of_labels, transpose(square_of_labels, perm=[1, 0])).astype("float32")
    targets = same / reduce_sum(same, dim=1, keep_dim=True)
    lengths = reduce_mean(reduce_sum(_squared(anchor), 1))
    lengths = (lengths + reduce_mean(reduce_sum(_squared(positive), 1))) * 0.25 * l2_reg
    products = matmul(anchor, positive, transpose_x=False, transpose_y=True)
    costs = softmax_with_cross_entropy(products, targets, soft_label=True)
    return lengths + reduce_mean(reduce_sum(targets * costs, 0))


def _squared(x: Variable) -> Variable:
    return append_simple_op("square", {"X": x})
