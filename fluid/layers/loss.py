"""Losses; each gives one number a row."""

from __future__ import annotations

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper

__all__ = ["cross_entropy", "softmax_with_cross_entropy", "square_error_cost"]

_IGNORED = -100


def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = _IGNORED
) -> Variable:
    """-log of the probability that `input` gives to `label`: [N, classes] → [N, 1].

    Labels are class numbers [N, 1], 0 loss where they are `ignore_index`; soft labels are
    probabilities [N, classes].
    """
    inputs = {"X": input, "Label": label}
    if soft_label:
        attrs = {"soft_label": True, "ignore_index": ignore_index}
        return LayerHelper("cross_entropy").append_result("cross_entropy", inputs, attrs, slot="Y")
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


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """`(input - label) ** 2`, element by element."""
    helper = LayerHelper("square_error_cost")
    difference = helper.append_result("elementwise_sub", {"X": input, "Y": label})
    return helper.append_result("square", {"X": difference})


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = _IGNORED,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Variable | tuple[Variable, Variable]:
    """Cross entropy of the softmax of `logits` along `axis`; with the softmax itself if asked."""
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
