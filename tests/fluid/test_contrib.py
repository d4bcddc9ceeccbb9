"""Contributed layers, optimizers and tools: names, shapes and numbers of Paddle 1.8.5."""

import numpy as np
import pytest

import fluid
from fluid import contrib
from fluid.contrib import layers as more

layers = fluid.layers
BATCH, TIME, FEATURES, HIDDEN = 3, 5, 4, 6


@pytest.fixture(autouse=True)
def programs():
    main, startup = fluid.Program(), fluid.Program()
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield main


def sequences():
    return layers.data("x", [-1, TIME, FEATURES], append_batch_size=False)


def states(name, count=4):
    return layers.data(name, [count, -1, HIDDEN], append_batch_size=False)


def absolute_sums(main, outputs, feed, steps=2):
    """Shapes, and sums of absolute values, of outputs in steps of SGD from recorded parameters."""
    fluid.optimizer.SGD(0.1).minimize(layers.mean(outputs[0]))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    random = np.random.RandomState(0)
    for param in main.global_block().all_parameters():
        start = random.uniform(-0.5, 0.5, param.shape).astype("float32")
        fluid.global_scope().find_var(param.name).get_tensor().set(start, fluid.CPUPlace())
    runs = [executor.run(main, feed, list(outputs)) for _ in range(steps)]
    return [[float(np.abs(value).sum()) for value in run] for run in runs], runs[0]


@pytest.fixture
def drawn():
    random = np.random.RandomState(1)
    x = random.randn(BATCH, TIME, FEATURES).astype("float32")
    h, c = (random.randn(4, BATCH, HIDDEN).astype("float32") for _ in "hc")
    return {"x": x, "len": np.array([5, 2, 3]), "h": h, "c": c}


def names(main):
    return [param.name for param in main.global_block().all_parameters()]


def test_lstm_of_two_layers(programs, drawn):
    outputs = more.basic_lstm(sequences(), None, None, HIDDEN, num_layers=2)
    sums, first = absolute_sums(programs, outputs, {"x": drawn["x"]})
    assert names(programs) == [
        f"basic_lstm_layers_{i}/BasicLSTMUnit_0.{kind}_0" for i in range(2) for kind in "wb"
    ]
    assert [value.shape for value in first] == [(3, 5, 6), (2, 3, 6), (2, 3, 6)]
    np.testing.assert_allclose(sums[0], [12.351404, 5.828806, 13.939179], rtol=1e-5)
    np.testing.assert_allclose(sums[1], [12.216845, 5.784198, 13.821503], rtol=1e-5)


def test_lstm_in_both_directions_with_lengths(programs, drawn):
    lengths = layers.data("len", [-1], dtype="int64", append_batch_size=False)
    outputs = more.basic_lstm(
        sequences(), states("h"), states("c"), HIDDEN, num_layers=2, sequence_length=lengths,
        bidirectional=True, forget_bias=0.5,
    )  # fmt: skip
    sums, first = absolute_sums(programs, outputs, drawn)
    assert [value.shape for value in first] == [(3, 5, 12), (4, 3, 6), (4, 3, 6)]
    np.testing.assert_allclose(sums[0], [55.152649, 10.961273, 23.304817], rtol=1e-5)
    np.testing.assert_allclose(sums[1], [55.084076, 10.950385, 23.278167], rtol=1e-5)


def test_gru_in_both_directions_with_names(programs, drawn):
    lengths = layers.data("len", [-1], dtype="int64", append_batch_size=False)
    del drawn["c"]
    outputs = more.basic_gru(
        sequences(), states("h"), HIDDEN, num_layers=2, sequence_length=lengths,
        bidirectional=True, param_attr=fluid.ParamAttr(name="pp"),
        bias_attr=fluid.ParamAttr(name="bb"),
    )  # fmt: skip
    sums, _ = absolute_sums(programs, outputs, drawn)
    assert names(programs)[:4] == [
        "pp_fw_w_0_gate", "pp_fw_w_0_candidate", "bb_fw_b_0_gate", "bb_fw_b_0_candidate"
    ]  # fmt: skip
    np.testing.assert_allclose(sums[0], [77.778061, 23.413639], rtol=1e-5)
    np.testing.assert_allclose(sums[1], [77.723709, 23.381636], rtol=1e-5)


def test_units(programs, drawn):
    a, h, c = layers.data("a", [FEATURES]), layers.data("h", [HIDDEN]), layers.data("c", [HIDDEN])
    lstm, gru = more.BasicLSTMUnit("mine", HIDDEN), more.BasicGRUUnit("yours", HIDDEN)
    hidden, cell = lstm(a, h, c)
    feed = {"a": drawn["x"][:, 0], "h": drawn["h"][0], "c": drawn["c"][0]}
    sums, _ = absolute_sums(programs, (gru(hidden, h), hidden, cell), feed)
    np.testing.assert_allclose(sums[0], [9.39243, 4.535556, 9.318856], rtol=1e-5)
    np.testing.assert_allclose(sums[1], [9.37940, 4.541718, 9.332201], rtol=1e-5)


@pytest.mark.parametrize("is_variable", [False, True])
def test_decoupled_weight_decay(programs, is_variable: bool):
    loss = layers.mean(layers.fc(layers.data("x", [4]), 2))
    coefficient = layers.create_global_var([1], 0.1, "float32", True) if is_variable else 0.1
    adam = contrib.extend_with_decoupled_weight_decay(fluid.optimizer.Adam)
    adam(
        weight_decay=coefficient, learning_rate=0.05, apply_decay_param_fun=lambda name: "w" in name
    ).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    weight = fluid.global_scope().find_var("fc_0.w_0").get_tensor()
    before = np.arange(8, dtype="float32").reshape(4, 2)
    weight.set(before, fluid.CPUPlace())
    for _ in range(3):
        executor.run(programs, feed={"x": np.ones((3, 4), "float32")})
    steps = 0.05 * (1 + 0.9 + 0.81)  # a constant gradient: Adam moves by its rate each step
    np.testing.assert_allclose(np.array(weight), before * 0.9**3 - steps, atol=1e-4)


def test_decay_wants_an_optimizer_class():
    with pytest.raises(TypeError, match="must be a class of optimizers"):
        contrib.extend_with_decoupled_weight_decay(int)
    adam = contrib.extend_with_decoupled_weight_decay(fluid.optimizer.Adam)
    with pytest.raises(TypeError, match="coeff must be a float or a Variable, not str"):
        adam(weight_decay="much")


def test_sums_for_metrics(programs):
    sums = more.ctr_metric_bundle(layers.data("p", [1]), layers.data("q", [1]))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    random = np.random.RandomState(0)
    p, q = random.rand(2, 5, 1).astype("float32"), random.randint(0, 2, (2, 5, 1)).astype("float32")
    for i in range(2):
        actual = executor.run(programs, {"p": p[i], "q": q[i]}, list(sums))
    expected = [
        np.square(p - q).sum(), np.abs(p - q).sum(), p.sum(), (1 / (1 + np.exp(-p))).sum(),
        q.sum(), 10,
    ]  # fmt: skip
    np.testing.assert_allclose(np.concatenate(actual), expected, rtol=1e-5)


def test_parts_of_rows():
    a, b = layers.data("a", [6]), layers.data("b", [6])
    fetched = [more.partial_sum([a, b], 1, 3), more.partial_concat([a, b], 2)]
    feed = {"a": np.arange(12, dtype="float32").reshape(2, 6), "b": np.ones((2, 6), "float32")}
    total, joined = fluid.Executor().run(feed=feed, fetch_list=fetched)
    np.testing.assert_array_equal(total, feed["a"][:, 1:4] + 1)
    np.testing.assert_array_equal(joined, np.hstack([feed["a"][:, 2:], feed["b"][:, 2:]]))


def test_rows_are_shuffled(programs):
    out = more.shuffle_batch(layers.data("x", [2]), seed=3)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    x = np.arange(200, dtype="float32").reshape(100, 2)
    first, second = (executor.run(programs, {"x": x}, [out])[0] for _ in range(2))
    assert sorted(map(tuple, first)) == sorted(map(tuple, x))
    assert (first != x).any() and (first != second).any()


def test_kept_boxes_and_their_index(programs):
    boxes, scores = layers.data("b", [4, 4]), layers.data("s", [2, 4])
    out, index = more.multiclass_nms2(
        boxes, scores, 0.1, 10, 10, return_index=True, background_label=-1
    )
    corners = [[0, 0, 1, 1], [0, 0, 1, 1.1], [2, 2, 3, 3], [0, 0, 0.5, 0.5]]
    points = [[0.9, 0.8, 0.7, 0.6], [0.2, 0.3, 0.05, 0.9]]
    feed = {"b": np.array([corners], "float32"), "s": np.array([points], "float32")}
    kept, places = fluid.Executor().run(programs, feed, [out, index], return_numpy=False)
    rows = np.array(kept)
    assert np.array(places).ravel().tolist() == [
        corners.index([round(float(v), 3) for v in row[2:]]) for row in rows
    ]


def network():
    hidden = layers.conv2d(layers.data("x", [1, 12, 12]), 4, 3, act="relu")
    hidden = layers.pool2d(layers.batch_norm(hidden), 2, pool_stride=2)
    return layers.mean(layers.fc(hidden, 10, act="tanh"))


def test_memory_usage(programs):
    network()
    low, high, unit = contrib.memory_usage(programs, 16)
    assert (round(low, 3), round(high, 3), unit) == (113.601, 119.011, "KB")
    with pytest.raises(ValueError, match="must be positive"):
        contrib.memory_usage(programs, 0)
    with pytest.raises(TypeError, match="takes a Program, not str"):
        contrib.memory_usage("main", 1)


def test_frequencies_of_ops(programs):
    network()
    single, pairs = contrib.op_freq_statistic(programs)
    assert dict(single)["elementwise_add"] == 2 and single[0] == ("elementwise_add", 2)
    assert ("conv2d->elementwise_add", 1) in pairs


def test_summary(programs, capsys):
    network()
    contrib.model_stat.summary(programs)
    printed = capsys.readouterr().out
    assert "|   0 |     conv2d | (1, 12, 12) | (4, 10, 10) |     36 |  7200 |" in printed
    assert "Total PARAMs: 1045(0.0010M)" in printed


@pytest.mark.parametrize(("trainer", "batches"), [("0", [0, 2, 4]), ("1", [1, 3, 5])])
def test_batches_are_divided_among_trainers(monkeypatch, trainer, batches):
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", trainer)
    assert list(contrib.distributed_batch_reader(lambda: iter(range(7)))()) == batches


def test_a_trainer_that_there_is_not(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    with pytest.raises(ValueError, match="PADDLE_TRAINER_ID is 1, but PADDLE_TRAINERS_NUM is 1"):
        contrib.distributed_batch_reader(lambda: iter(()))
