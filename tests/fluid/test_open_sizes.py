"""Values whose size only the data decides, beside values of known sizes."""

from typing import Any

import numpy as np
import pytest

import fluid

layers = fluid.layers


def column(name: str) -> Any:
    return fluid.data(name, [None, 1], "float32")


def test_a_difference_to_a_batch_of_known_size(exe: Any, fresh_programs: Any) -> None:
    """The difference has a known size; what it is taken from has none to be planned."""
    padded, lengths, target = column("padded"), fluid.data("lengths", [None], "int64"), column("y")
    rows = layers.sequence_unpad(padded, lengths)
    loss = layers.mean(layers.square(layers.elementwise_sub(rows, target)))
    feed = {
        "padded": np.array([[1], [2], [3]], "float32"),
        "lengths": np.ones(3, "int64"),
        "y": np.array([[1], [1], [1]], "float32"),
    }
    (value,) = exe.run(feed=feed, fetch_list=[loss])
    assert value == pytest.approx(5 / 3)


@pytest.mark.parametrize("limit", [0, 9])
def test_a_branch_that_gets_no_rows(limit: int, exe: Any, fresh_programs: Any) -> None:
    """Of `IfElse` both branches run, one of them on no rows, in both directions."""
    x, label = fluid.data("x", [None, 4], "float32"), fluid.data("label", [None, 1], "int64")
    bound = layers.fill_constant_batch_size_like(label, [-1, 1], "int64", limit)
    choice = layers.IfElse(layers.less_than(label, bound))
    with choice.true_block():
        choice.output(layers.fc(choice.input(x), 3, act="tanh"))
    with choice.false_block():
        choice.output(layers.softmax(layers.fc(choice.input(x), 3)))
    loss = layers.mean(choice()[0])
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 4), "float32"), "label": np.array([[1], [2]])}
    (gradient,) = exe.run(feed=feed, fetch_list=["fc_0.w_0@GRAD"])
    assert gradient.any() == (limit == 9)
