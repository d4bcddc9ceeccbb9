"""How well predictions fit, as tensors of the program."""

from __future__ import annotations

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.nn import topk

__all__ = ["accuracy"]


def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
) -> Variable:
    """The share of rows whose label is among the `k` largest entries of `input`: [1], float32.

    `correct` and `total`, if given, receive the counts: [1], int32.
    """
    helper = LayerHelper("accuracy")
    values, indices = topk(input, k)
    share = helper.create_variable_for_type_inference("float32")
    correct, total = (
        helper.create_variable_for_type_inference("int32") if each is None else each
        for each in (correct, total)
    )
    helper.append_op(
        "accuracy",
        inputs={"Out": values, "Indices": indices, "Label": label},
        outputs={"Accuracy": share, "Correct": correct, "Total": total},
    )
    return share
