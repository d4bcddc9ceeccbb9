"""Uncommon calls of scripts of release 1.8.5, and their results."""

import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers

pytestmark = pytest.mark.usefixtures("fresh_programs")
X = np.ones((1, 3), "float32")


def trained(exe: Any) -> tuple[fluid.Variable, Any]:
    """A loss of 3 with weights of 1, and what `minimize` returns."""
    ones = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(1.0))
    x = fluid.data("x", [None, 3])
    loss = layers.mean(layers.fc(x, 1, param_attr=ones, bias_attr=False))
    ops = fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    return loss, ops


def test_fetch_lists_are_nested(exe: Any) -> None:
    x = fluid.data("x", [None, 3])
    a, b = x + 1.0, x * 3.0
    values = exe.run(feed={"x": X}, fetch_list=[[a], [b, a.name]])
    assert [value[0, 0] for value in values] == [2.0, 3.0, 2.0]
    assert exe.run(feed={"x": X}, fetch_list=[[], a])[0][0, 0] == 2.0


def test_pruning_runs_the_updates_in_the_fetch_list_alone(exe: Any) -> None:
    """Two tasks share a layer; gradients are clipped and regularized on the way to an update."""
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
    shared = fluid.layers.fc(x, 2, param_attr="shared")
    losses = [fluid.layers.mean(fluid.layers.fc(shared, 1, param_attr=n)) for n in ("w1", "w2")]
    losses[1] += fluid.layers.mean(y)
    sgd = fluid.optimizer.SGD(
        0.1, regularization=fluid.regularizer.L2Decay(0.5),
        grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1),
    )  # fmt: skip
    updates = [sgd.minimize(loss) for loss in losses]
    exe.run(fluid.default_startup_program())
    names = ("shared", "w1", "w2")

    def moved(feed: Any, fetch: Any) -> list[str]:
        before = [np.array(fluid.global_scope().find_var(n).get_tensor()) for n in names]
        exe.run(feed=feed, fetch_list=fetch, use_prune=True)
        after = [np.array(fluid.global_scope().find_var(n).get_tensor()) for n in names]
        return [n for n, a, b in zip(names, before, after, strict=True) if not np.array_equal(a, b)]

    assert moved({"x": X}, [losses[0], updates[0]]) == ["shared", "w1"]
    both = {"x": X, "y": X[:, :1]}
    assert moved(both, [updates[1][0]]) == ["shared", "w2"]
    assert moved(both, updates) == moved(both, [losses[0]]) == moved(both, []) == [*names]
    assert moved({"x": X}, ["shared", updates[0]]) == ["shared", "w1"]
    other = fluid.Program().global_block()
    with pytest.raises(ValueError, match="another program"):
        exe.run(
            feed=both, fetch_list=[[op.copied_to(other) for op in updates[0][0]]], use_prune=True
        )


def test_fetching_the_result_of_minimize(exe: Any) -> None:
    loss, ops = trained(exe)
    for fetch in ([loss, ops], [loss, ops[0]], [ops, loss]):
        (value,) = exe.run(feed={"x": X}, fetch_list=fetch, use_prune=True)
        assert value.shape == (1,)
    assert exe.run(feed={"x": X}, fetch_list=[ops]) == []
    weights = np.array(fluid.global_scope().find_var("w").get_tensor())
    np.testing.assert_allclose(weights, 0.6, rtol=1e-6)


def test_other_ops_are_not_fetched(exe: Any) -> None:
    trained(exe)
    first = fluid.default_main_program().global_block().ops[0]
    with pytest.raises(TypeError, match="operator mul in fetch_list is not an optimize_op"):
        exe.run(feed={"x": X}, fetch_list=[[first]])


@pytest.mark.parametrize("feeds", [[], None])
def test_a_whole_program_is_saved_without_feeds_and_targets(
    exe: Any, tmp_path: Path, feeds: Any
) -> None:
    trained(exe)
    saved = fluid.io.save_inference_model(
        str(tmp_path), feeds, [], exe, export_for_deployment=False
    )
    assert saved == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "__model__.main_program",
        "learning_rate_0",
        "w",
    ]


def test_the_third_argument_of_data_is_true_or_false() -> None:
    assert layers.data("x", [13], "float32").shape == (-1, 13)
    assert layers.data("y", [13], "int64").dtype == fluid.core.VarDesc.VarType.FP32
    assert layers.data("z", [13], 0).shape == (13,)


@pytest.mark.parametrize("size", [2.0, 10 / 4, np.float32(2)])
def test_batches_of_a_fraction(size: float) -> None:
    assert list(fluid.io.batch(lambda: range(5), size)()) == [[0, 1], [2, 3], [4]]
    x = fluid.data("x", [None, 1])
    loader = fluid.io.DataLoader.from_generator([x], 2)
    rows = [(np.full(1, i, "float32"),) for i in range(5)]
    loader.set_sample_generator(lambda: iter(rows), size, places=fluid.CPUPlace())
    assert [np.array(batch[0]["x"])[:, 0].tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_attributes_are_float32_as_in_a_saved_program(exe: Any) -> None:
    x = fluid.data("x", [None, 3], "float64")
    out = layers.scale(x, 0.1)
    (op,) = fluid.default_main_program().global_block().ops
    assert op.attr("scale") == 0.10000000149011612
    (value,) = exe.run(feed={"x": X.astype("float64")}, fetch_list=[out])
    assert value[0, 0] == 0.10000000149011612


def test_images_of_bytes_are_resampled_as_numbers(exe: Any) -> None:
    picture = fluid.data("picture", [1, 1, 2, 2], "uint8")
    block = fluid.default_main_program().global_block()
    out = block.create_var(name="out", dtype="uint8")
    sizes = {"out_h": 2, "out_w": 4, "align_corners": True}
    block.append_op("bilinear_interp", {"X": picture}, {"Out": out}, sizes)
    fed = np.array([[[[139, 172], [153, 20]]]], "uint8")
    for place in (exe, fluid.Executor(fluid.CUDAPlace(0))):
        (value,) = place.run(feed={"picture": fed}, fetch_list=[out])
        assert value[0, 0].tolist() == [[139, 150, 161, 172], [153, 108, 64, 20]]


def detection_map(exe: Any, found: Any, true: Any, lengths: Any = ([3], [2])) -> float:
    layers_of = [layers.data("found", [6], lod_level=1), layers.data("true", [5], lod_level=1)]
    mean = layers.detection_map(*layers_of, 4, 0, 0.5)
    feed = {
        "found": fluid.create_lod_tensor(np.array(found, "float32"), [lengths[0]], exe.place),
        "true": fluid.create_lod_tensor(np.array(true, "float32"), [lengths[1]], exe.place),
    }
    return float(exe.run(feed=feed, fetch_list=[mean])[0])


FOUND = [[1, 0.9, 0, 0, 1, 1], [1, 0.8, 0, 0, 0.9, 0.9], [2, 0.7, 0.1, 0.1, 0.3, 0.3]]


def test_undetected_classes_count_as_zero(exe: Any) -> None:
    true = [[1, 0, 0, 1, 1], [3, 0, 0, 1, 1]]
    assert detection_map(exe, FOUND, true) == 0.5


def test_images_without_labels_are_rejected(exe: Any) -> None:
    with pytest.raises(ValueError, match="boxes of 2 images, Label those of 1"):
        detection_map(exe, FOUND, [[1, 0, 0, 1, 1]], ([2, 1], [1]))


def test_sequences_of_tensors_one_behind_the_other(exe: Any) -> None:
    x, y = layers.data("x", [2], lod_level=1), layers.data("y", [2], lod_level=1)
    plain = layers.data("plain", [2])
    joined = layers.concat([x, y])
    sums = layers.sequence_pool(joined, "sum")
    feed = {
        "x": fluid.create_lod_tensor(np.ones((3, 2), "float32"), [[1, 2]], exe.place),
        "y": fluid.create_lod_tensor(np.ones((4, 2), "float32"), [[3, 1]], exe.place),
        "plain": np.ones((3, 2), "float32"),
    }
    fetch = [joined, sums, layers.concat([plain, x])]
    values = exe.run(feed=feed, fetch_list=fetch, return_numpy=False)
    assert values[0].lod() == [[0, 1, 3, 6, 7]]
    assert np.array(values[1])[:, 0].tolist() == [1, 2, 3, 1]
    assert values[2].lod() == []


def test_a_tensor_made_of_lengths() -> None:
    tensor = fluid.LoDTensor([[2, 2]])
    assert (tensor.lod(), tensor.recursive_sequence_lengths()) == ([[0, 2, 4]], [[2, 2]])


def test_variables_filled_with_an_array_of_one_number(exe: Any) -> None:
    var = layers.create_global_var([2], np.array([2.5]), "float32", persistable=True)
    exe.run(fluid.default_startup_program())
    assert exe.run(fetch_list=[layers.scale(var, 2.0)])[0].tolist() == [5.0, 5.0]


def test_counts_of_auc_are_lists() -> None:
    auc = fluid.metrics.Auc("auc")
    auc.update(np.array([[0.1, 0.9], [0.6, 0.4], [0.3, 0.7]]), np.array([[1], [0], [1]]))
    assert (type(auc._stat_pos), len(auc._stat_pos), sum(auc._stat_pos)) == (list, 4096, 2)
    assert auc.eval() == 1.0


def test_optimizer_state_names() -> None:
    loss = layers.mean(layers.fc(fluid.data("x", [None, 3]), 1))
    adam = fluid.optimizer.Adam(0.1)
    adam.minimize(loss)
    weight = fluid.default_main_program().all_parameters()[0]
    moment = adam._get_accumulator(adam._moment1_acc_str, weight)
    assert moment.name == "fc_0.w_0_moment1_0"
    assert fluid.optimizer.Adadelta._avg_squared_grad_acc_str == "_avg_squared_grad"
    assert fluid.optimizer.RMSProp._mean_square_acc_str == "mean_square"


def test_the_queue_of_a_reader_that_is_not_started() -> None:
    reader = layers.py_reader(4, [[-1, 3]], ["float32"], use_double_buffer=False)
    assert (reader.queue.size(), reader.queue.capacity()) == (0, 4)


def test_scripts_wait_for_the_thread_of_a_reader(exe: Any) -> None:
    reader = layers.py_reader(4, [[-1, 3]], ["float32"])
    value = layers.read_file(reader)
    reader.decorate_batch_generator(lambda: iter([[X], [X]]))
    assert reader.thread is None
    reader.start()
    with pytest.raises(fluid.core.EOFException):
        while True:
            exe.run(fetch_list=[value])
    reader.exited = True
    reader.thread.join()
    assert not reader.thread.is_alive()


@pytest.mark.parametrize("in_thread", [False, True])
def test_batches_are_pushed_to_the_queue_of_a_reader(in_thread: bool, exe: Any) -> None:
    reader = layers.py_reader(2, [[-1, 3]], ["float32"])
    value, queue = layers.read_file(reader), reader.queue
    batches = [fluid.LoDTensorArray() for _ in range(4)]
    for number, batch in enumerate(batches):
        batch.append(fluid.create_lod_tensor(X * number, [], fluid.CPUPlace()))
    if in_thread:  # more batches than the queue has room for: it waits
        pushing = Thread(target=lambda: [queue.push(batch) for batch in batches])
        pushing.start()
        values = [exe.run(fetch_list=[value])[0][0, 0] for _ in batches]
        pushing.join()
        assert values == [0, 1, 2, 3]
        queue.close()
    else:
        assert queue.push(batches[1]) and queue.push(batches[2]) and queue.size() == 2
        queue.close()
        assert not queue.push(batches[3])
        assert [exe.run(fetch_list=[value])[0][0, 0] for _ in range(2)] == [1, 2]
    with pytest.raises(fluid.core.EOFException):
        exe.run(fetch_list=[value])
    with pytest.raises(TypeError, match="a batch is a LoDTensorArray"):
        queue.push([X])
    reader.reset()
    reader.queue.push(batches[3])
    assert exe.run(fetch_list=[value])[0][0, 0] == 3


@pytest.mark.parametrize("layer", ["case", "switch_case"])
def test_branches_train_the_same_parameter(layer: str, exe: Any) -> None:
    """Each has its optimizer; the second does not depend on the first one's update."""
    x, task = fluid.data("x", [1, 3]), fluid.data("task", [1], "int32")
    weight = layers.create_parameter(
        [3], "float32", name="w", default_initializer=fluid.initializer.Constant(1.0)
    )

    def train(rate: float) -> None:
        fluid.optimizer.SGD(rate).minimize(layers.mean(x * weight) * 3.0)

    first, second = partial(train, 0.5), partial(train, 0.25)
    if layer == "case":
        layers.case([(task == layers.fill_constant([1], "int32", 1), first)], second)
    else:
        layers.switch_case(task, {1: first}, second)
    exe.run(fluid.default_startup_program())
    values = []
    for number in (1, 0):
        exe.run(feed={"x": X, "task": np.array([number], "int32")})
        values.append(np.array(fluid.global_scope().find_var("w").get_tensor())[0])
    assert values == [0.5, 0.25]


def test_a_warmup_before_a_decay_in_eager_mode() -> None:
    with fluid.dygraph.guard():
        decay = layers.polynomial_decay(1.0, 10, 0.0, 1.0)
        rate = layers.linear_lr_warmup(decay, 2, 0.0, 1.0)
        values = [float(rate().numpy()) for _ in range(4)]
    assert np.allclose(values, [0.5, 0.9, 0.8, 0.7])
    with pytest.raises(TypeError, match="a program has no PolynomialDecay"):
        layers.linear_lr_warmup(decay, 2, 0.0, 1.0)


def test_saving_with_auc_warns_of_its_states(exe: Any, tmp_path: Path) -> None:
    predicted = fluid.data("predicted", [None, 2])
    layers.auc(predicted, fluid.data("label", [None, 1], "int64"))
    exe.run(fluid.default_startup_program())
    with pytest.warns(UserWarning, match="^please ensure that you have set the auc states to zer"):
        fluid.io.save_inference_model(str(tmp_path), ["predicted"], [predicted * 2.0], exe)


SCRIPT = """
import importlib

import numpy as np
import paddle.fluid as fluid
from paddle.fluid import nets

np.bool = bool
positive = fluid.data("x", [None, 3]) > 0
again = importlib.reload(nets)
importlib.reload(fluid.metrics)
print(fluid.layers.cast(positive, np.bool).dtype, again is nets)
value, = fluid.Executor().run(feed={"x": np.ones((1, 3), "float32")}, fetch_list=[positive])
print(value.dtype == np.bool, value.dtype)
"""


def test_scripts_that_set_bool_and_load_modules_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "fluid", "run", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:2] == ["VarType.BOOL True", "True bool"], done.stderr


def test_gates_are_clipped_as_in_the_reference(exe: Any) -> None:
    """Of `dynamic_gru` at -40 and 13, of `gru_unit` nowhere."""
    rows = np.array([[-100, -50, 20, 90, 0.1, 0.2]], "float32")
    x, before = layers.data("x", [6], lod_level=1), layers.data("before", [2])
    zero = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.0))
    layers.dynamic_gru(x, 2, param_attr=zero, bias_attr=False)
    (gru,) = fluid.default_main_program().global_block().ops
    flat = layers.data("flat", [6])
    _, _, unit_gates = layers.gru_unit(flat, before, 6, param_attr=zero, bias_attr=False)
    exe.run(fluid.default_startup_program())
    feed = {
        "x": fluid.create_lod_tensor(rows, [[1]], exe.place),
        "flat": rows,
        "before": np.zeros((1, 2), "float32"),
    }
    fetch = [gru.output("BatchGate")[0], unit_gates]
    clipped, free = (
        np.array(v)[0, :4] for v in exe.run(feed=feed, fetch_list=fetch, return_numpy=False)
    )
    low, high = 4.248354e-18, 0.99999774
    np.testing.assert_allclose(clipped, [low, low, high, high], rtol=1e-6)
    np.testing.assert_allclose(free, [3.783506e-44, 1.92875e-22, 1, 1], rtol=1e-4, atol=1e-43)


def test_restored_indices_have_no_lod(exe: Any) -> None:
    boxes = layers.data("boxes", [4], lod_level=1)
    _, restore = layers.distribute_fpn_proposals(boxes, 2, 5, 4, 224)
    rows = np.array([[0, 0, 100, 100], [0, 0, 300, 300], [0, 0, 20, 20]], "float32")
    feed = {"boxes": fluid.create_lod_tensor(rows, [[2, 1]], exe.place)}
    (value,) = exe.run(feed=feed, fetch_list=[restore])
    assert value[:, 0].tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("layer", "error"),
    [
        (lambda: layers.cast(fluid.data("x", [2], "int16"), "float32"), TypeError),
        (lambda: layers.cast(fluid.data("x", [2]), "int16"), TypeError),
        (lambda: layers.reshape(fluid.data("x", [2], "bool"), [1, 2]), TypeError),
        (lambda: layers.reshape(fluid.data("x", [2], "uint8"), [1, 2]), TypeError),
        (lambda: layers.reshape(fluid.data("x", [2]), [-1, -1]), AssertionError),
        (lambda: layers.reshape(fluid.data("x", [2]), []), AssertionError),
        (lambda: layers.fill_constant([], "float32", 1.0), AssertionError),
    ],
)
def test_rejected_calls(layer: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        layer()


@pytest.mark.parametrize("corners", [4, 8])
def test_polygons_are_merged_and_suppressed(exe: Any, corners: int) -> None:
    """Numbers are those of release 1.8.5."""
    angles = np.arange(8) * 2 * np.pi / 8
    round_one = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], "float32")
    base = square if corners == 4 else round_one
    moved = [(base + by).reshape(-1) for by in (0, 0.05, 3, 3.3, 0.02)]
    boxes = fluid.data("boxes", [1, 5, 2 * corners])
    kept = layers.locality_aware_nms(
        boxes, fluid.data("scores", [1, 1, 5]), 0.1, 10, 10, nms_threshold=0.3, background_label=-1
    )
    feed = {"boxes": np.array([moved], "float32")}
    feed["scores"] = np.array([[[0.5, 0.7, 0.9, 0.2, 0.6]]], "float32")
    (value,) = exe.run(feed=feed, fetch_list=[kept], return_numpy=False)
    rows = np.array(value)
    assert (value.lod(), rows.shape) == ([[0, 2]], (2, 2 + 2 * corners))
    np.testing.assert_allclose(rows[:, 1], [1.2, 1.1], rtol=1e-6)
    first = 0.02917 if corners == 4 else 1.02917
    np.testing.assert_allclose(rows[:, 2], [first, first - 0.02917 + 3.05455], atol=1e-4)
