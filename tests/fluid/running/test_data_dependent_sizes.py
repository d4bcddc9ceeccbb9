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


def test_labels_of_flattened_rows_do_not_recompile(exe: Any, fresh_programs: Any) -> None:
    """A label for each word of padded sentences: N·M rows, which no name of their own can be."""
    words = fluid.data("words", [None, None, 1], "int64")
    label = fluid.data("label", [None, 1], "int64")
    rows = layers.reshape(layers.embedding(words, [20, 4]), [-1, 4])
    losses = layers.softmax_with_cross_entropy(layers.fc(rows, 6), label)
    loss = layers.mean(losses)
    exe.run(fluid.default_startup_program())
    before = exe.counters.compiles
    for sentences, length in ((3, 5), (3, 7), (2, 9), (6, 11)):
        feed = {
            "words": np.ones((sentences, length, 1), "int64"),
            "label": np.zeros((sentences * length, 1), "int64"),
        }
        values, mean = exe.run(feed=feed, fetch_list=[losses, loss])
        assert values.shape == (sentences * length, 1)
        assert mean == pytest.approx(values.mean())
    assert exe.counters.compiles - before == 1
    with pytest.raises(ValueError, match="34"):
        exe.run(feed=feed | {"label": np.zeros((34, 1), "int64")}, fetch_list=[loss])


def test_labels_of_square_batches(exe: Any, fresh_programs: Any) -> None:
    """As many words as sentences: N·N rows."""
    x, y = fluid.data("x", [None, None, 2], "float32"), fluid.data("y", [None, 1], "float32")
    total = layers.elementwise_add(layers.reduce_sum(x, -1), layers.reshape(y, layers.shape(x)[:2]))
    rows = layers.elementwise_sub(layers.reshape(total, [-1, 1]), y)
    for size in (3, 4, 5):
        inputs = np.ones((size, size, 2), "float32"), np.ones((size * size, 1), "float32")
        (result,) = exe.run(feed=dict(zip("xy", inputs, strict=True)), fetch_list=[rows])
        assert (result == 2).all() and result.shape == (size * size, 1)
    assert exe.counters.compiles == 1


def test_a_loss_of_rows_that_only_the_data_counts(exe: Any, fresh_programs: Any) -> None:
    """As in the first stage of a detector: scores gathered where boxes were found."""
    scores = fluid.data("scores", [None, 1], "float32")
    labels = fluid.data("labels", [None, 1], "float32")
    actual = layers.where(layers.greater_than(scores, layers.zeros_like(scores)))
    rows = layers.slice(actual, [1], [0], [1])
    kept, wanted = (layers.gather(each, rows) for each in (scores, labels))
    losses = layers.sigmoid_cross_entropy_with_logits(kept, wanted, normalize=True)
    inputs = np.array([[1], [-2], [3], [-4], [5]], np.float32)
    feed = {"scores": inputs, "labels": (inputs > 2).astype(np.float32)}
    (value,) = exe.run(feed=feed, fetch_list=[losses])
    expected = np.log1p(np.exp([1.0, -3.0, -5.0])) / 3
    np.testing.assert_allclose(value.ravel(), expected, rtol=1e-5)
