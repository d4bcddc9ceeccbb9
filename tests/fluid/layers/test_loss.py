"""Layers of losses and metrics: the ops they write, what they refuse, and that they learn."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import Variable, default_main_program, default_startup_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def data(name: str, *shape: int, dtype: str = "float32", lod: int = 0) -> Variable:
    return layers.data(name, list(shape), dtype=dtype, lod_level=lod)


def written() -> list[Any]:
    return default_main_program().global_block().ops


def sequences(rows: Any, *lengths: int) -> fluid.LoDTensor:
    return fluid.create_lod_tensor(np.asarray(rows), [list(lengths)], fluid.CPUPlace())


def losses(exe: fluid.Executor, loss: Variable, feeds: list[dict[str, Any]], rate: float = 0.5):
    """Return the loss of each step of gradient descent."""
    fluid.optimizer.SGD(rate).minimize(loss)
    exe.run(default_startup_program())
    return [float(exe.run(feed=feed, fetch_list=[loss])[0].reshape(())) for feed in feeds]


def noise(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def whole(*shape: int, high: int, seed: int = 0, low: int = 0) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape)


# ---- rows ---------------------------------------------------------------------------------------


def test_losses_of_rows_are_one_op_each() -> None:
    score, other, truth = data("score", 1), data("other", 1), data("truth", 1)
    shares, label = data("shares", 4), data("label", 1, dtype="int64")
    created = [
        layers.cross_entropy(shares, label),
        layers.cross_entropy(shares, layers.label_smooth(shares), soft_label=True),
        layers.bpr_loss(shares, label),
        layers.log_loss(score, truth),
        layers.sigmoid_cross_entropy_with_logits(score, truth, normalize=True),
        layers.teacher_student_sigmoid_loss(score, truth),
        layers.rank_loss(truth, score, other),
        layers.margin_rank_loss(truth, score, other),
        layers.huber_loss(score, truth, 0.5),
        layers.smooth_l1(score, truth, sigma=2.0),
    ]
    assert [op.type for op in written()] == [
        *("cross_entropy2", "label_smooth", "cross_entropy", "bpr_loss", "log_loss"),
        *("sigmoid_cross_entropy_with_logits", "teacher_student_sigmoid_loss", "rank_loss"),
        *("margin_rank_loss", "huber_loss", "smooth_l1_loss"),
    ]
    assert {var.shape for var in created} == {(-1, 1)}


def test_losses_of_a_whole_batch() -> None:
    x, y = data("x", 3), data("y", 3)
    created = [layers.mse_loss(x, y), layers.kldiv_loss(x, y), layers.kldiv_loss(x, y, "batchmean")]
    pixels, classes = data("pixels", 5, 4), data("classes", 5, 1, dtype="int64")
    created.append(layers.dice_loss(pixels, classes))
    assert {var.shape for var in created} == {(1,)}
    assert layers.kldiv_loss(x, y, "none").shape == (-1, 3)


@pytest.mark.parametrize(
    ("layer", "argument"),
    [
        (lambda x, y: layers.log_loss(x, y), "input"),
        (lambda x, y: layers.rank_loss(x, y, y), "label"),
        (lambda x, y: layers.margin_rank_loss(y, y, x), "right"),
        (lambda x, y: layers.huber_loss(y, x, 1.0), "label"),
        (lambda x, y: layers.mse_loss(x, y), "input"),
        (lambda x, y: layers.nce(x, y, 5), "input"),
        (lambda x, y: layers.linear_chain_crf(y, y), "label"),
        (lambda x, y: layers.warpctc(y, y), "label"),
        (lambda x, y: layers.edit_distance(y, x), "input"),
        (lambda x, y: layers.chunk_eval(x, y, "IOB", 2), "label"),
        (lambda x, y: layers.auc(y, y), "label"),
        (lambda x, y: layers.mean_iou(y, x, 2), "Predictions"),
    ],
)
def test_element_types_are_checked(layer: Any, argument: str) -> None:
    x, y = data("x", 4, dtype="int64"), data("y", 4)
    with pytest.raises(TypeError, match=f"The data type of '{argument}' in"):
        layer(x, y)


def test_label_smooth_wants_a_share_and_stops_gradients() -> None:
    with pytest.raises(ValueError, match=r"epsilon of label_smooth must be from 0 to 1, not 1.5"):
        layers.label_smooth(data("x", 4), epsilon=1.5)
    x = data("x", 4)
    x.stop_gradient = False
    layers.label_smooth(x)
    assert x.stop_gradient


def test_centers_are_learnt_by_the_op(exe: fluid.Executor) -> None:
    centers = fluid.ParamAttr(name="centers", initializer=fluid.initializer.Constant(0.0))
    x, label = data("x", 2), data("label", 1, dtype="int64")
    loss = layers.mean(layers.center_loss(x, label, 3, 0.5, centers))
    exe.run(default_startup_program())
    feed = {"x": np.array([[4, 0], [0, 2]], np.float32), "label": np.array([[0], [2]])}
    results = [float(exe.run(feed=feed, fetch_list=[loss])[0].reshape(())) for _ in range(3)]
    np.testing.assert_allclose(results, [5 * 0.75 ** (2 * n) for n in range(3)], rtol=1e-6)
    moved = np.asarray(fluid.global_scope().find_var("centers").get_tensor())
    assert moved[1].tolist() == [0, 0]
    with pytest.raises(TypeError, match="'alpha' in center_loss must be float or Variable"):
        layers.center_loss(x, label, 3, 1, centers)


def test_embeddings_are_distinguished(exe: fluid.Executor) -> None:
    anchor, positive = (fluid.data(name, [6, 3]) for name in ("anchor", "positive"))
    labels = fluid.data("labels", [6], "int64")
    loss = layers.npair_loss(layers.fc(anchor, 4), layers.fc(positive, 4), labels)
    truth = np.arange(6) // 2
    ones = np.eye(3, dtype=np.float32)[truth]
    feed = {"anchor": ones, "positive": ones + 0.1 * noise(6, 3), "labels": truth}
    actual = losses(exe, loss, [feed] * 30)
    assert actual[-1] < 0.7 * actual[0]


# ---- sequences ----------------------------------------------------------------------------------


def test_crf_learns_tags_of_any_lengths(exe: fluid.Executor) -> None:
    words, tags = data("words", 5, lod=1), data("tags", 1, dtype="int64", lod=1)
    scores = layers.fc(words, 3)
    transition = fluid.ParamAttr(name="transition")
    with pytest.raises(ValueError, match="transition"):
        layers.crf_decoding(scores, transition)
    cost = layers.linear_chain_crf(scores, tags, param_attr=transition)
    path = layers.crf_decoding(scores, transition)
    right = layers.crf_decoding(scores, transition, label=tags)
    assert (cost.shape, cost.lod_level) == ((-1, 1), 0)
    assert (path.shape, path.dtype.name, path.lod_level) == ((-1, 1), "INT64", 1)
    test = default_main_program().clone(for_test=True)
    feeds = []
    for step in range(40):
        lengths = 1 + step % 5, 4, 2 + step % 3
        truth = whole(sum(lengths), 1, high=3, seed=step)
        seen = np.eye(5, dtype=np.float32)[truth[:, 0]]
        feeds.append({"words": sequences(seen, *lengths), "tags": sequences(truth, *lengths)})
    actual = losses(exe, layers.mean(cost), feeds)
    assert actual[-1] < 0.3 * actual[0]
    guessed, hits = exe.run(test, feed=feeds[3], fetch_list=[path, right], return_numpy=False)
    assert guessed.recursive_sequence_lengths() == [[4, 4, 2]]
    np.testing.assert_array_equal(np.asarray(guessed), np.asarray(feeds[3]["tags"]))
    assert np.asarray(hits).all()


def test_padded_tags_need_their_lengths(exe: fluid.Executor) -> None:
    words, tags = data("words", 4, 5), data("tags", 4, dtype="int64")
    length = data("length", 1, dtype="int64")
    scores = layers.fc(words, 3, num_flatten_dims=2)
    transition = fluid.ParamAttr(name="transition")
    cost = layers.linear_chain_crf(scores, tags, transition, length)
    path = layers.crf_decoding(scores, transition, length=length)
    assert (cost.shape, path.shape) == ((-1, 1), (-1, 4))
    shares = layers.chunk_eval(path, tags, "plain", 2, seq_length=length)
    feed = {"words": noise(2, 4, 5), "tags": whole(2, 4, high=3), "length": np.array([[4], [2]])}
    exe.run(default_startup_program())
    result = exe.run(feed=feed, fetch_list=[cost, path, *shares])
    assert (result[0] > 0).all()
    assert result[1][1, 2:].tolist() == [0, 0]
    assert [each.shape for each in result[2:]] == [(1,)] * 6


def test_sounds_are_transcribed(exe: fluid.Executor) -> None:
    sound, text = data("sound", 4, lod=1), data("text", 1, dtype="int32", lod=1)
    scores = layers.fc(sound, 4)
    cost = layers.warpctc(scores, text, blank=3, norm_by_times=True)
    decoded = layers.ctc_greedy_decoder(scores, blank=3)
    distance, count = layers.edit_distance(decoded, layers.cast(text, "int64"), normalized=False)
    heard = np.array([0, 0, 1, 2, 2, 2, 1, 0])
    feed = {
        "sound": sequences(np.eye(4, dtype=np.float32)[heard], 3, 5),
        "text": sequences(np.array([[0], [1], [2], [1], [0]], np.int32), 2, 3),
    }
    result = losses(exe, layers.mean(cost), [feed] * 60, rate=3.0)
    assert result[-1] < 0.3 * result[0]
    fetched = [decoded, distance, count]
    labels, apart, sequences_read = exe.run(feed=feed, fetch_list=fetched, return_numpy=False)
    assert np.asarray(labels).ravel().tolist() == [0, 1, 2, 1, 0]
    assert labels.recursive_sequence_lengths() == [[2, 3]]
    assert np.asarray(apart).tolist() == [[0.0], [0.0]]
    assert np.asarray(sequences_read).tolist() == [2]


def test_sequences_of_blanks_only_get_another_lod(exe: fluid.Executor) -> None:
    sound = data("sound", 2, lod=1)
    reset = layers.lod_reset(layers.ctc_greedy_decoder(sound, blank=1), target_lod=[0, 1])
    feed = {"sound": sequences(np.array([[0, 1], [0, 1], [0, 1]], "f4"), 1, 2)}
    (result,) = exe.run(feed=feed, fetch_list=[reset], return_numpy=False)
    assert np.asarray(result).tolist() == [[-1]] and result.lod() == [[0, 1]]


def test_padded_sounds(exe: fluid.Executor) -> None:
    sound, text = data("sound", 6, 4), data("text", 3, dtype="int32")
    steps, words = (layers.data(n, [-1], append_batch_size=False, dtype="int64") for n in "nm")
    cost = layers.warpctc(
        layers.transpose(sound, [1, 0, 2]), text, input_length=steps, label_length=words
    )
    column = layers.reshape(steps, [-1, 1])
    labels, counts = layers.ctc_greedy_decoder(sound, 0, input_length=column, padding_value=-1)
    with pytest.raises(ValueError, match="ctc_greedy_decoder needs input_length for"):
        layers.ctc_greedy_decoder(sound, 0)
    feed = {
        "sound": np.eye(4, dtype=np.float32)[np.array([[1, 1, 0, 2, 3, 3], [2, 0, 2, 1, 1, 1]])],
        "text": np.array([[1, 2, 3], [2, 2, 0]], np.int32),
        "n": np.array([5, 3]),
        "m": np.array([3, 2]),
    }
    price, result, lengths = exe.run(feed=feed, fetch_list=[cost, labels, counts])
    assert price.shape == (2, 1)
    assert (price > 0).all()
    assert result.tolist() == [[1, 2, 3, -1, -1, -1], [2, 2, -1, -1, -1, -1]]
    assert lengths.tolist() == [[3], [2]]


def test_some_tokens_do_not_count(exe: fluid.Executor) -> None:
    hyps, refs = (data(name, 1, dtype="int64", lod=1) for name in ("hyps", "refs"))
    plain, _ = layers.edit_distance(hyps, refs, normalized=False)
    without, _ = layers.edit_distance(hyps, refs, ignored_tokens=[0])
    feed = {
        "hyps": sequences(np.array([[0], [1], [2], [3]]), 3, 1),
        "refs": sequences(np.array([[1], [0], [4], [3], [0]]), 3, 2),
    }
    result = exe.run(feed=feed, fetch_list=[plain, without])
    assert [each.ravel().tolist() for each in result] == [[3.0, 1.0], [0.5, 0.0]]


# ---- many classes -------------------------------------------------------------------------------


def test_nce_appends_the_ops_of_1_8_5() -> None:
    x, label = data("x", 3), data("label", 2, dtype="int64")
    out = layers.nce(x, label, 7, sampler="log_uniform", is_sparse=True, seed=5)
    op, *rest = written()
    assert [other.type for other in rest] == ["scale"]
    assert rest[0].attr("scale") == pytest.approx(1 / 11)
    assert (op.attr("sampler"), op.attr("num_neg_samples"), op.attr("seed")) == (1, 10, 5)
    assert op.attr("is_sparse") and op.attr("remote_prefetch")
    block = default_main_program().global_block()
    assert [block.var(op.input(slot)[0]).shape for slot in ("Weight", "Bias")] == [(7, 3), (7, 1)]
    assert out.shape == (-1, 1)


def test_nce_of_a_given_distribution() -> None:
    x, label = data("x", 3), data("label", 1, dtype="int64")
    layers.nce(x, label, 3, sampler="custom_dist", custom_dist=[0.5, 0.25, 0.25], bias_attr=False)
    op = written()[0]
    assert op.input("Bias") == []
    assert op.attr("sampler") == 2
    slots = ("CustomDistProbs", "CustomDistAlias", "CustomDistAliasProbs")
    table = [default_main_program().global_block().var(op.input(slot)[0]) for slot in slots]
    assert [var.shape for var in table] == [(3,)] * 3
    assert all(var.stop_gradient for var in table)


def test_nce_errors() -> None:
    x, label = data("x", 3), data("label", 1, dtype="int64")
    with pytest.raises(ValueError, match=r"sampler of nce must be one of .* not 'zipf'"):
        layers.nce(x, label, 3, sampler="zipf")
    with pytest.raises(
        AssertionError, match="custom_dist of nce must have 3 probabilities, not None"
    ):
        layers.nce(x, label, 3, sampler="custom_dist")
    with pytest.raises(ValueError, match="must have 3 probabilities, not 2 numbers"):
        layers.nce(x, label, 3, sampler="custom_dist", custom_dist=[0.5, 0.5])


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "custom_dist"])
def test_nce_learns(exe: fluid.Executor, sampler: str, is_sparse: bool) -> None:
    x, label = data("x", 6), data("label", 1, dtype="int64")
    even = [1 / 6] * 6 if sampler == "custom_dist" else None
    options: dict[str, Any] = {"sampler": sampler, "custom_dist": even, "is_sparse": is_sparse}
    loss = layers.mean(layers.nce(x, label, 6, num_neg_samples=4, seed=1, **options))
    truth = whole(12, 1, high=6)
    actual = losses(
        exe, loss, [{"x": np.eye(6, dtype=np.float32)[truth[:, 0]], "label": truth}] * 30, rate=5.0
    )
    assert actual[-1] < 0.8 * actual[0]


def test_a_tree_of_classes_learns(exe: fluid.Executor) -> None:
    x, label = data("x", 6), data("label", 1, dtype="int64")
    loss = layers.mean(layers.hsigmoid(x, label, 6))
    assert written()[0].output("W_Out") == written()[0].input("W")
    truth = whole(12, 1, high=6)
    actual = losses(
        exe, loss, [{"x": np.eye(6, dtype=np.float32)[truth[:, 0]], "label": truth}] * 30
    )
    assert actual[-1] < 0.6 * actual[0]


def test_two_trees_of_one_weight(exe: fluid.Executor) -> None:
    """Each contributes to the gradient, though each also writes the weight."""
    x, label = data("x", 3), data("label", 1, dtype="int64")
    weight = fluid.ParamAttr(name="forks", initializer=fluid.initializer.Constant(0.1))
    first, second = (
        layers.mean(layers.hsigmoid(layers.scale(x, k), label, 4, weight, bias_attr=False))
        for k in (1.0, -2.0)
    )
    forks = default_main_program().global_block().var("forks")
    feed = {"x": noise(5, 3), "label": whole(5, 1, high=4)}
    both = fluid.gradients([first + second], [forks])
    apart = [*fluid.gradients([first], [forks]), *fluid.gradients([second], [forks])]
    exe.run(default_startup_program())
    total, one, other = exe.run(feed=feed, fetch_list=[*both, *apart])
    np.testing.assert_allclose(total, one + other, rtol=1e-5)


def test_own_paths(exe: fluid.Executor) -> None:
    x, label = data("x", 3), data("label", 1, dtype="int64")
    table, code = (data(name, 2, dtype="int64") for name in ("table", "code"))
    paths: dict[str, Any] = {"path_table": table, "path_code": code, "is_custom": True}
    loss = layers.mean(layers.hsigmoid(x, label, 4, is_sparse=True, **paths))
    feed = {
        "x": noise(3, 3),
        "label": np.array([[0], [1], [2]]),
        "table": np.array([[0, 3], [0, -1], [1, 2]]),
        "code": np.array([[0, 1], [1, -1], [0, 0]]),
    }
    result = losses(exe, loss, [feed] * 30)
    assert result[-1] < 0.6 * result[0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"num_classes": 1}, "num_classes of hsigmoid must be at least 2, not 1"),
        ({"num_classes": 4, "path_table": 1}, "'path_table' in hsigmoid must be Variable"),
        ({"num_classes": 4, "is_custom": True}, "needs path_table, path_code, num_classes"),
    ],
)
def test_hsigmoid_errors(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        layers.hsigmoid(data("x", 3), data("label", 1, dtype="int64"), **options)


def test_a_softmax_over_a_few_classes_learns(exe: fluid.Executor) -> None:
    x, label = data("x", 9), data("label", 1, dtype="int64")
    logits = layers.fc(x, 9)
    loss = layers.mean(layers.sampled_softmax_with_cross_entropy(logits, label, 4, seed=3))
    kinds = [op.type for op in written()]
    assert kinds[2:5] == ["sample_logits", "one_hot", "softmax_with_cross_entropy"]
    truth = whole(12, 1, high=9)
    actual = losses(
        exe, loss, [{"x": np.eye(9, dtype=np.float32)[truth[:, 0]], "label": truth}] * 30
    )
    assert actual[-1] < 0.5 * actual[0]


def test_samples_by_hand(exe: fluid.Executor) -> None:
    logits, label = data("logits", 5), data("label", 1, dtype="int64")
    samples, chances = data("samples", 3, dtype="int64"), data("chances", 3)
    options: dict[str, Any] = {"customized_samples": samples, "customized_probabilities": chances}
    loss = layers.sampled_softmax_with_cross_entropy(
        logits, label, 2, use_customized_samples=True, remove_accidental_hits=False, **options
    )
    feed = {"logits": noise(2, 5), "label": np.array([[1], [4]])}
    feed |= {
        "samples": np.array([[1, 0, 3], [4, 2, 2]]),
        "chances": np.full((2, 3), 0.5, np.float32),
    }
    (result,) = exe.run(feed=feed, fetch_list=[loss])
    shown = np.take_along_axis(feed["logits"], feed["samples"], 1)
    want = np.log(np.exp(shown).sum(1)) - shown[:, 0]
    np.testing.assert_allclose(result.ravel(), want, rtol=1e-5)


# ---- metrics ------------------------------------------------------------------------------------


def test_area_of_all_batches_and_of_the_last(exe: fluid.Executor) -> None:
    scores, label = data("scores", 2), data("label", 1, dtype="int64")
    every, last, counts = layers.auc(scores, label, num_thresholds=99)
    assert [var.shape for var in counts] == [(201,), (201,), (1, 100), (1, 100)]
    assert [op.attr("slide_steps") for op in written()] == [1, 0]
    exe.run(default_startup_program())
    batches = [([0.2, 0.8], [0, 1]), ([0.3, 0.9], [1, 0])]
    results = []
    for chances, labels in batches:
        chance = np.array(chances, np.float32).reshape(-1, 1)
        feed = {"scores": np.hstack([1 - chance, chance]), "label": np.array(labels).reshape(-1, 1)}
        results.append([each.item() for each in exe.run(feed=feed, fetch_list=[every, last])])
    assert results == [[1.0, 1.0], [0.5, 0.0]]


def test_mean_iou(exe: fluid.Executor) -> None:
    guessed, true = (data(name, 4, dtype="int32") for name in ("guessed", "true"))
    created = layers.mean_iou(guessed, true, 3)
    feed = {
        "guessed": np.array([[0, 0, 1, 1]], np.int32),
        "true": np.array([[0, 1, 1, 1]], np.int32),
    }
    mean, wrong, correct = exe.run(feed=feed, fetch_list=list(created))
    np.testing.assert_allclose(mean, [(1 / 2 + 2 / 3) / 2], rtol=1e-6)
    assert (wrong.tolist(), correct.tolist()) == ([1, 1, 0], [1, 2, 0])
