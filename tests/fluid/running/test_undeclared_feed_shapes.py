"""What `layers.data` and readers declare is a hint, as in 1.8.5: ops decide what they can use."""

import numpy as np
import pytest

import fluid
from compiler.errors import ShapeError

layers = fluid.layers


@pytest.fixture
def run():
    """A function that builds a program and runs it on feeds; the fetched arrays and the executor."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor()

        def call(output, feeds):
            if fluid.default_startup_program().global_block().ops:
                executor.run(fluid.default_startup_program())
            before = executor.counters.compiles
            values = [executor.run(feed=feed, fetch_list=[output])[0] for feed in feeds]
            return values, executor.counters.compiles - before

        yield call


def ones(*shape, dtype="float32"):
    return {"x": np.ones(shape, dtype)}


def test_another_rank(run):
    out = layers.fc(layers.data("x", [4]), 2)
    values, compiles = run(out, [ones(3, 1, 4), ones(5, 1, 4), ones(9, 1, 4)])
    assert [value.shape for value in values] == [(3, 2), (5, 2), (9, 2)]
    assert compiles == 1


def test_flat_rows_for_images(run):
    out = layers.fc(layers.data("x", [1, 28, 28]), 2)
    values, compiles = run(out, [ones(n, 784) for n in (2, 3, 4)])
    assert [value.shape for value in values] == [(2, 2), (3, 2), (4, 2)]
    assert compiles <= 2


def test_other_lengths_than_declared_compile_once(run):
    x = layers.data("x", [64, 1])
    values, compiles = run(layers.reduce_sum(x, dim=1), [ones(3, n, 1) for n in (29, 31, 64)])
    assert [value[0, 0] for value in values] == [29, 31, 64]
    assert compiles == 2, "one for any length, one for the declared"


def test_a_convolution_on_another_size(run):
    out = layers.conv2d(layers.data("x", [3, 8, 8]), 2, 3)
    values, _ = run(out, [ones(2, 3, 10, 12), ones(2, 3, 7, 9)])
    assert [value.shape for value in values] == [(2, 2, 8, 10), (2, 2, 5, 7)]


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling_of_images_of_any_size_to_the_same_size(kind):
    """The padding depends on the size, which the kernel of the pooling gets when it runs."""
    images = np.arange(3 * 7 * 9, dtype="float32").reshape(1, 3, 7, 9)
    results = []
    for shape in ([None, 3, None, None], [1, 3, 7, 9]):
        with fluid.program_guard(fluid.Program()), fluid.unique_name.guard():
            x = fluid.data("x", shape)
            x.stop_gradient = False
            out = layers.pool2d(x, 3, kind, 2, "SAME")
            gradients = fluid.gradients([out], [x])
            results.append(fluid.Executor().run(feed={"x": images}, fetch_list=[out, *gradients]))
    assert results[0][0].shape == (1, 3, 4, 5)
    for dynamic, static in zip(*results, strict=True):
        np.testing.assert_array_equal(dynamic, static)


def test_another_element_type_where_the_op_takes_it(run):
    x = layers.data("x", [1], dtype="int64")
    values, _ = run(layers.one_hot(x, 3), [ones(2, 1, dtype="int32"), ones(2, 1, dtype="int64")])
    assert values[0].tolist() == values[1].tolist() == [[0, 1, 0]] * 2


@pytest.mark.parametrize("declared", ["float32", "int32"])
def test_labels_of_another_element_type_than_declared(run, declared):
    x, label = layers.data("x", [3]), layers.data("label", [1], dtype=declared)
    softmax = layers.fc(x, 3, param_attr=fluid.initializer.Constant(0.5), act="softmax")
    loss = layers.mean(layers.cross_entropy(softmax, layers.reshape(label, [-1, 1])))
    correct = layers.equal(layers.topk(softmax, 1)[1], label)
    total = (
        loss + layers.accuracy(softmax, label) + layers.reduce_sum(layers.cast(correct, "float32"))
    )
    fluid.optimizer.SGD(0.1).minimize(loss)
    values, _ = run(total, [ones(2, 3) | {"label": np.zeros((2, 1), "int64")}])
    np.testing.assert_allclose(values[0], np.log(3) + 1 + 2, rtol=1e-6)


def test_steps_of_another_element_type_than_declared(run):
    rows = layers.data("x", [1], lod_level=1)
    rnn = layers.DynamicRNN()
    with rnn.block():
        rnn.output(rnn.step_input(rows) * 2)
    last = layers.sequence_last_step(rnn())
    batch = fluid.create_lod_tensor(np.array([[1], [2], [3]]), [[2, 1]], fluid.CPUPlace())
    values, _ = run(last, [{"x": batch}])
    assert (values[0].dtype, values[0].tolist()) == (np.int64, [[4], [6]])


def test_a_float_label_declared_as_integer(run):
    x, label = layers.data("x", [1]), layers.data("label", [1], dtype="int64")
    loss = layers.sigmoid_cross_entropy_with_logits(x, label) + (x - label)
    values, _ = run(loss, [ones(2, 1) | {"label": np.ones((2, 1), "float32")}])
    np.testing.assert_allclose(values[0], 0.3132617, rtol=1e-6)


def test_element_types_that_are_declared_for_good_are_checked_when_recorded(run):
    label = fluid.data("label", [None, 1], "float32")
    with pytest.raises(ShapeError, match=r"Label is f32\[\?, 1\], expected element type i64"):
        layers.cross_entropy(layers.data("x", [3]), label)


def test_unread_feeds_are_not_checked(run):
    layers.data("y", [1], dtype="int64")
    out = layers.scale(layers.data("x", [4]), 2.0)
    values, _ = run(out, [ones(3, 4) | {"y": np.ones((7, 2, 2))}])
    assert values[0].tolist() == [[2.0] * 4] * 3


def test_unusable_feed_names_feed_and_op(run):
    out = layers.fc(layers.data("x", [4]), 2)
    with pytest.raises(
        ValueError, match=r"feed 'x' must have the shape \(-1, 4\), but \(5, 3\)"
    ) as e:
        run(out, [ones(5, 3)])
    assert "mul: X f32[5, 3] and Y f32[4, 2] do not fit" in e.value.__notes__[0]


def test_missing_feed_is_named(run):
    out = layers.fc(layers.data("x", [4]), 2) + layers.fc(layers.data("y", [4]), 2)
    with pytest.raises(ValueError, match="missing feed: 'y'"):
        run(out, [ones(5, 3)])


def test_fluid_data_is_checked(run):
    out = layers.reduce_sum(fluid.data("x", [None, 4]))
    with pytest.raises(ValueError, match=r"shape = \(-1, 4\), but received fed shape \[5, 3\]"):
        run(out, [ones(5, 3)])


def test_a_reader_returns_shorter_batches_than_declared(run):
    reader = layers.py_reader(4, [[-1, 64, 1], [-1, 1]], ["float32", "int64"])
    words, _ = layers.read_file(reader)
    out = layers.reduce_sum(words)
    executor = fluid.Executor()
    batches = [(np.ones((3, n, 1), "float32"), np.ones((3, 1), "int64")) for n in (29, 30, 31)]
    reader.decorate_tensor_provider(lambda: iter(batches))
    reader.start()
    assert [executor.run(fetch_list=[out])[0].item() for _ in batches] == [87, 90, 93]


def test_a_loaded_model_runs_on_other_images(run, tmp_path):
    image = layers.data("x", [3, 8, 8])
    out = layers.pool2d(layers.conv2d(image, 2, 3), global_pooling=True)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path), ["x"], [out], executor)
    predictor = fluid.create_predictor(str(tmp_path))
    assert predictor.run(ones(2, 3, 10, 12))[0].shape == (2, 2, 1, 1)
    program, names, fetched = fluid.io.load_inference_model(str(tmp_path), executor)
    feed = dict(zip(names, ones(2, 3, 9, 11).values(), strict=True))
    assert executor.run(program, feed, fetched)[0].shape == (2, 2, 1, 1)


def reading(run, reader, batch):
    """The error of a run over batches of a reader, and the reader's own variable names."""
    image, label = layers.read_file(reader)
    out = layers.fc(image, 2) + layers.reduce_mean(layers.cast(label, "float32"))
    reader.decorate_tensor_provider(lambda: iter([batch]))
    reader.start()
    with pytest.raises(ValueError) as error:
        run(out, [{}])
    reader.reset()
    return error.value


def test_feeds_of_a_reader_have_the_names_that_users_gave(run):
    image, label = layers.data("img", [4]), layers.data("lab", [1], dtype="int64")
    reader = layers.create_py_reader_by_data(2, [image, label])
    error = reading(run, reader, (np.ones((3, 5), "float32"), np.ones((3, 1), "int64")))
    assert "feed 'img' must have the shape (-1, 4), but (3, 5) was given" in str(error)
    assert "mul: X f32[3, 5] and Y f32[4, 2] do not fit" in error.__notes__[0]


def test_feeds_of_a_reader_of_shapes_are_counted(run):
    reader = layers.py_reader(2, [[-1, 4], [-1, 1]], ["float32", "int64"])
    error = reading(run, reader, (np.ones((3, 5), "float32"), np.ones((3, 1), "int64")))
    assert "feed 'value 0 of py_reader' must have the shape (-1, 4)" in str(error)


def test_a_reader_without_sequences_where_an_op_reads_them(run):
    words = layers.data("words", [1], lod_level=1)
    reader = layers.create_py_reader_by_data(2, [words])
    read = layers.read_file(reader)
    out = layers.sequence_pool(read, "sum")
    reader.decorate_tensor_provider(lambda: iter([(np.ones((3, 1), "float32"),)]))
    reader.start()
    with pytest.raises(ValueError, match="sequence_pool reads sequences") as error:
        run(out, [{}])
    assert f"{read.name!r} is fed by a reader as 'words'" in error.value.__notes__
