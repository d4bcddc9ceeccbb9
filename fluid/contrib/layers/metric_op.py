"""Running sums for metrics of click-through rates."""

from __future__ import annotations

from fluid import layers
from fluid.framework import Variable
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.layers.mathematics.arithmetic import elementwise_sub
from fluid.layers.mathematics.reductions import reduce_sum
from fluid.layers.tensor import fill_constant_batch_size_like

__all__ = ["ctr_metric_bundle"]


def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Variable, ...]:
    """Return sums over all batches so far, each a persistable float32 [1] initialized to 0.

    `input` and `label` are [batch, 1]. Returns the sums of (input − label)², of |input − label|, of
    input, of sigmoid(input), of label, and the number of rows. With several trainers, all-reduce
    each before dividing. Raises AssertionError if the shapes differ.
    """
    assert input.shape == label.shape, f"input {input.shape} and label {label.shape} differ"
    helper = LayerHelper("ctr_metric_bundle")
    difference = elementwise_sub(input, label)
    ones = fill_constant_batch_size_like(label, [-1, 1], "float32", 1.0)
    of_batch = (
        helper.append_result("squared_l2_norm", {"X": difference}),
        helper.append_result("l1_norm", {"X": difference}),
        *(reduce_sum(variable) for variable in (input, layers.sigmoid(input), label, ones)),
    )
    return tuple(_accumulate(helper, variable) for variable in of_batch)


def _accumulate(helper: LayerHelper, value: Variable) -> Variable:
    """Return the sum of a value over all runs."""
    total = helper.create_global_variable(persistable=True, dtype="float32", shape=[1])
    helper.set_variable_initializer(total, Constant(0.0))
    helper.append_op("elementwise_add", inputs={"X": value, "Y": total}, outputs={"Out": total})
    return total
