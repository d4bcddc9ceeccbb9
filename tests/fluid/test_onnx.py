"""`fluid.onnx.export` and `fluid export`: saved models as ONNX files that ONNX Runtime runs alike."""

import sys
from pathlib import Path

import numpy as np
import pytest

import fluid
import fluid.onnx
from compiler.ir.text.parser import parse
from fluid.cli import export as command
from fluid.cli.main import main

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def saved(folder: Path, outputs: list[fluid.Variable], feeds: list[str]) -> Path:
    """Save the default program as an inference model."""
    executor = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().global_block().ops:
        executor.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(folder), feeds, outputs, executor)
    return folder


@pytest.fixture
def tagger(tmp_path: Path, fresh_programs: object) -> Path:
    """A model of sentences: recurrent layers in both directions and a CRF."""
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    vectors = fluid.layers.embedding(words, [30, 8])
    both = [
        fluid.layers.dynamic_gru(fluid.layers.fc(vectors, 12), 4, is_reverse=reverse)
        for reverse in (False, True)
    ]
    cells, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(vectors, 16), 16)
    scores = fluid.layers.fc([*both, cells], 5)
    transitions = fluid.ParamAttr("transitions")
    fluid.layers.create_parameter([7, 5], "float32", attr=transitions)
    tags = fluid.layers.crf_decoding(scores, transitions)
    pooled = fluid.layers.sequence_pool(scores, "average")
    return saved(tmp_path / "tagger", [tags, pooled], ["words"])


def test_sequences_are_rows_and_offsets(tagger: Path, tmp_path: Path) -> None:
    fluid.onnx.export(str(tagger), tmp_path / "tagger.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "tagger.onnx"))
    assert [each.name for each in session.get_inputs()] == ["words", "words@LOD0"]
    predictor = fluid.create_predictor(str(tagger))
    for lengths in ([2, 5, 1], [1], [4, 4]):
        ids = np.arange(sum(lengths)).reshape(-1, 1) % 30
        tensor = fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace())
        ours = [np.asarray(result) for result in predictor.run({"words": tensor})]
        offsets = np.cumsum([0, *lengths])
        theirs = session.run(None, {"words": ids, "words@LOD0": offsets})
        np.testing.assert_array_equal(theirs[0], ours[0])
        np.testing.assert_allclose(theirs[-1], ours[1], 1e-5, 1e-6)


def test_dynamic_rnn_is_a_loop_over_ranked_sequences(
    tmp_path: Path, fresh_programs: object
) -> None:
    x = fluid.data("x", [None, 4], lod_level=1)
    first = fluid.layers.sequence_pool(x, "first")
    start = fluid.layers.fc(first, 6)
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        step, fixed = rnn.step_input(x), rnn.static_input(first)
        before, total = rnn.memory(shape=[6]), rnn.memory(init=start, need_reorder=True)
        state = fluid.layers.fc([step, before, fixed], 6, act="tanh")
        rnn.update_memory(before, state)
        rnn.update_memory(total, state + total)
        rnn.output(state + total)
    model = saved(tmp_path / "rnn", [rnn()], ["x"])
    fluid.onnx.export(str(model), tmp_path / "rnn.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "rnn.onnx"))
    predictor = fluid.create_predictor(str(model))
    for lengths in ([2, 5, 1, 5], [1], [3, 0, 2]):
        rows = np.random.default_rng(len(lengths)).random((sum(lengths), 4), np.float32)
        tensor = fluid.create_lod_tensor(rows, [lengths], fluid.CPUPlace())
        (ours,) = predictor.run({"x": tensor})
        offsets = np.cumsum([0, *lengths])
        theirs, levels = session.run(None, {"x": rows, "x@LOD0": offsets})
        np.testing.assert_allclose(theirs, np.asarray(ours), 1e-5, 1e-6)
        np.testing.assert_array_equal(levels, offsets)


def test_attention_reads_the_sequences_of_a_static_input(
    tmp_path: Path, fresh_programs: object
) -> None:
    layers = fluid.layers
    source = layers.data("source", [4], lod_level=1)
    target = layers.data("target", [3], lod_level=1)
    encoded = layers.fc(source, 5, act="tanh")
    last = layers.sequence_pool(encoded, "last")
    rnn = layers.DynamicRNN()
    with rnn.block():
        step, states = rnn.step_input(target), rnn.static_input(encoded)
        before = rnn.memory(init=last, need_reorder=True)
        query = layers.sequence_expand(layers.fc(before, 5), states)
        weights = layers.sequence_softmax(layers.fc([states, query], 1, act="tanh"))
        weighted = layers.elementwise_mul(states, layers.reshape(weights, [-1]), axis=0)
        context = layers.sequence_pool(weighted, "sum")
        state, _, _ = layers.gru_unit(layers.fc([context, step], 15), before, 15)
        rnn.update_memory(before, state)
        rnn.output(state)
    model = saved(tmp_path / "attention", [rnn()], ["source", "target"])
    fluid.onnx.export(str(model), tmp_path / "attention.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "attention.onnx"))
    predictor = fluid.create_predictor(str(model))
    for lengths in ({"source": [3, 5, 2], "target": [4, 1, 2]}, {"source": [2], "target": [3]}):
        feed, theirs = {}, {}
        for name, width in (("source", 4), ("target", 3)):
            rows = np.random.default_rng(7).random((sum(lengths[name]), width), np.float32)
            feed[name] = fluid.create_lod_tensor(rows, [lengths[name]], fluid.CPUPlace())
            theirs |= {name: rows, f"{name}@LOD0": np.cumsum([0, *lengths[name]])}
        (ours,) = predictor.run(feed)
        result, offsets = session.run(None, theirs)
        np.testing.assert_allclose(result, np.asarray(ours), 1e-5, 1e-6)
        np.testing.assert_array_equal(offsets, theirs["target@LOD0"])


def test_command_compares_with_onnx_runtime(
    tagger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(tagger), "-o", str(tmp_path / "t.onnx"), "--check"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("agrees") == 3
    assert main([*arguments, "--tolerance", "0"]) in (0, 1)


def test_probabilities_near_0_may_have_the_rounding_of_their_logits(
    tagger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = np.array([2e-6, 3e-7], np.float32), np.array([2.1e-6, 3e-7], np.float32)
    monkeypatch.setattr(command, "results", lambda *_: [{"x": each} for each in results])
    arguments = ["export", str(tagger), "-o", str(tmp_path / "t.onnx"), "--check"]
    assert main(arguments) == 0
    assert main([*arguments, "--tolerance", "1e-6"]) == 1
    results[0][0] = 4e-6
    assert main(arguments) == 1


def test_difference_is_exit_code_1(
    tagger: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = np.ones(2, np.float32)
    monkeypatch.setattr(command, "results", lambda *_: ({"x": x}, {"x": x + 1}))
    assert main(["export", str(tagger), "-o", str(tmp_path / "t.onnx"), "--check"]) == 1
    assert "2 of 2 beyond" in capsys.readouterr().out


def test_loops_and_branches_are_loop_and_if(tmp_path: Path, fresh_programs: object) -> None:
    x = fluid.data("x", [None, 2])
    count = fluid.data("count", [1], "int64")
    step = fluid.layers.fill_constant([1], "int64", 0)
    _, doubled = fluid.layers.while_loop(
        lambda i, y: fluid.layers.less_than(i, count),
        lambda i, y: [i + 1, y * 2.0],
        [step, x + 0.0],
    )
    is_large = fluid.layers.reduce_sum(doubled) > fluid.layers.fill_constant([1], "float32", 20.0)
    y = fluid.layers.cond(is_large, lambda: doubled - 1.0, lambda: doubled + 1.0)
    folder = saved(tmp_path / "loop", [y], ["x", "count"])
    fluid.onnx.export(str(folder), tmp_path / "loop.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "loop.onnx"))
    ones = np.ones((3, 2), np.float32)
    for number, expected in ((0, 2), (1, 3), (2, 3), (3, 7)):
        (result,) = session.run(None, {"x": ones, "count": np.array([number])})
        np.testing.assert_array_equal(result, ones * expected)


def test_sizes_and_bounds_may_be_tensors(tmp_path: Path, fresh_programs: object) -> None:
    """Of slices, constants, repetitions, the largest elements and classes; also for one row."""
    layers = fluid.layers
    x = fluid.data("x", [None, 6, 4])
    begin, count = (fluid.data(name, [1], "int32") for name in ("begin", "count"))
    ids = fluid.data("ids", [None], "int64")
    rows = layers.slice(layers.shape(x), [0], [0], [1])
    best, at = layers.topk(layers.reduce_sum(x, 1), count)
    outputs = [
        layers.slice(x, [1], [begin], [6]), layers.slice(x, [1, 2], [begin, 0], [6, count]),
        layers.fill_constant([rows, 4], "float32", 1.5), best, at,
        layers.expand(x, [1, count, 2]), fluid.one_hot(ids, count),
    ]  # fmt: skip
    model = saved(tmp_path / "model", outputs, ["x", "begin", "count", "ids"])
    fluid.onnx.export(str(model), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    predictor = fluid.create_predictor(str(model))
    for batch, first, number in ((1, 2, 1), (3, -5, 4), (2, 0, 2)):
        feed = {
            "x": np.random.default_rng(batch).normal(size=(batch, 6, 4)).astype("float32"),
            "begin": np.array([first], "int32"), "count": np.array([number], "int32"),
            "ids": np.arange(number),
        }  # fmt: skip
        for ours, theirs in zip(predictor.run(feed), session.run(None, feed), strict=True):
            np.testing.assert_allclose(theirs, ours, 1e-6, strict=True)


def test_features_of_as_many_proposals_as_there_are(tmp_path: Path, fresh_programs: object) -> None:
    layers = fluid.layers
    image, info = fluid.data("image", [None, 2, 16, 16]), fluid.data("info", [None, 3])
    levels = [layers.conv2d(image, 4, 3, stride=stride, padding=1) for stride in (2, 4)]
    proposals = []
    for stride, features in zip((2, 4), levels, strict=True):
        anchors, variances = layers.anchor_generator(
            features, [3.0 * stride], [0.5, 2.0], [1.0] * 4, [float(stride)] * 2
        )
        scores = layers.conv2d(features, 2, 1, act="sigmoid")
        codes = layers.conv2d(features, 8, 1)
        proposals.append(layers.generate_proposals(
            scores, codes, info, anchors, variances, 40, 9, nms_thresh=0.6, min_size=1.0
        ))  # fmt: skip
    rois = layers.collect_fpn_proposals(*zip(*proposals, strict=True), 2, 3, 12)
    parts, restore = layers.distribute_fpn_proposals(rois, 2, 3, 2, 6)
    pooled = [
        layers.roi_align(features, part, 2, 2, 1 / stride, 2)
        for stride, features, part in zip((2, 4), levels, parts, strict=True)
    ]
    scores = layers.fc(layers.gather(layers.concat(pooled), restore), 3)
    model = saved(tmp_path / "rcnn", [layers.box_clip(rois, info), scores], ["image", "info"])
    fluid.onnx.export(str(model), tmp_path / "rcnn.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "rcnn.onnx"))
    predictor = fluid.create_predictor(str(model))
    for images in (1, 3):
        feed = {
            "image": np.random.default_rng(images).random((images, 2, 16, 16), np.float32),
            "info": np.array([[16, 16 - image, 1] for image in range(images)], np.float32),
        }
        boxes, expected = (np.asarray(each) for each in predictor.run(feed))
        theirs = session.run(None, feed)
        assert 0 < len(boxes) <= 12 and theirs[1][-1] == len(boxes)
        np.testing.assert_allclose(theirs[0], boxes, 1e-5, 1e-5)
        np.testing.assert_allclose(theirs[2], expected, 1e-4, 1e-5)


def test_feeds_whose_lods_must_be_equal_share_their_rows(
    tmp_path: Path, fresh_programs: object, capsys: pytest.CaptureFixture[str]
) -> None:
    left, right = (fluid.layers.data(name, [2], lod_level=1) for name in ("left", "right"))
    pooled = fluid.layers.sequence_pool(left + right, "sum")
    folder = saved(tmp_path / "pair", [pooled], ["left", "right"])
    fluid.onnx.export(str(folder), tmp_path / "new" / "pair.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "new" / "pair.onnx"))
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert shapes["left"] == shapes["right"] == ["rows", 2]
    assert main(["export", str(folder), "-o", str(tmp_path / "pair.onnx"), "--check"]) == 0


def test_refusals_name_ops_and_write_nothing(
    tmp_path: Path, fresh_programs: object, capsys: pytest.CaptureFixture[str]
) -> None:
    x = fluid.data("x", [2, 3, 4, 4])
    focus = fluid.layers.similarity_focus(x, 1, [0])
    folder = saved(tmp_path / "focus", [focus], ["x"])
    assert main(["export", str(folder), "-o", str(tmp_path / "new" / "focus.onnx")]) == 2
    assert "make the folder first" in capsys.readouterr().err
    target = tmp_path / "focus.onnx"
    assert main(["export", str(folder), "-o", str(target)]) == 2
    assert "similarity_focus" in capsys.readouterr().err and not target.exists()


def test_shapes_of_feeds_are_chosen(
    tmp_path: Path, fresh_programs: object, capsys: pytest.CaptureFixture[str]
) -> None:
    image = fluid.data("image", [None, 3, None, None])
    conv = fluid.layers.conv2d(image, 4, 3, stride=2, padding=1)
    large = fluid.layers.image_resize(conv, scale=2.0)
    folder = saved(tmp_path / "sum", [large + fluid.layers.conv2d(image, 4, 1)], ["image"])
    arguments = ["export", str(folder), "-o", str(tmp_path / "m.onnx")]
    assert main(arguments) == 2
    assert "--shape x=N,3,640,640" in capsys.readouterr().err
    assert main([*arguments, "--shape", "image=N,3,8,8", "--check"]) == 0
    assert main([*arguments, "--shape", "picture=N,3,8,8"]) == 2
    for opset in ("11", "99"):
        assert main([*arguments, "--shape", "image=N,3,8,8", "--opset", opset]) == 2


def test_missing_package_is_named(
    tagger: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(fluid.onnx, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(tagger), "-o", str(tmp_path / "t.onnx")]) == 2
    assert "pip install 'fluid-compiler[onnx]'" in capsys.readouterr().err


def test_batch_norms_are_folded_unless_the_model_is_wanted_as_saved(tmp_path: Path) -> None:
    text = """graph main {
  feed x: f32[N, 2, 4, 4]
  param w: f32[3, 2, 1, 1]
  param s: f32[3]
  param b: f32[3]
  param m: f32[3]
  param v: f32[3]
  (Output=c: f32[N, 3, 4, 4]) = conv2d(Filter=w, Input=x)
  (Y=y: f32[N, 3, 4, 4], MeanOut=m#1: f32[3] over m, VarianceOut=v#1: f32[3] over v) = \
batch_norm(X=c, Scale=s, Bias=b, Mean=m, Variance=v) {'is_test': True}
  return y
}
"""
    draw = np.random.RandomState(0)
    names = {"w": (3, 2, 1, 1), "s": (3,), "b": (3,), "m": (3,), "v": (3,)}
    params = {name: draw.rand(*shape).astype(np.float32) for name, shape in names.items()}
    x = draw.rand(2, 2, 4, 4).astype(np.float32)
    kinds, results = [], []
    for folded in (True, False):
        arrays = dict(params)
        proto = fluid.onnx.export_graph(parse(text), arrays, tmp_path / "n.onnx", folded)
        kinds.append({node.op_type for node in proto.graph.node})
        session = onnxruntime.InferenceSession(str(tmp_path / "n.onnx"))
        results += session.run(None, {"x": x})
    assert kinds == [{"Conv", "Add", "Reshape"}, {"Conv", "BatchNormalization"}]
    np.testing.assert_allclose(*results, 1e-5, 1e-6)
