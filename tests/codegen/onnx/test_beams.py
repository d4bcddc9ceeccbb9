"""Beam search in ONNX: the candidates that the op selects, and the sentences that they make."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
import fluid.onnx
from compiler.codegen.onnx.export import onnx_model
from compiler.ir.text.parser import parse

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

SEARCH = """graph main {{
  feed pre_ids: i64[P, 1]
  feed pre_scores: f32[P, 1]
  feed ids: i64[P, {width}]
  feed scores: f32[P, {width}]
  feed scores@LOD0: i64[A]
  feed scores@LOD1: i64[B]
  (selected_ids=word: i64[?, 1], selected_ids_lod=[word@LOD0: i64[?], word@LOD1: i64[?]], \
selected_scores=score: f32[?, 1], selected_scores_lod=[score@LOD0: i64[?], score@LOD1: i64[?]], \
parent_idx=parent: i32[?]) = beam_search(pre_ids=pre_ids, pre_scores=pre_scores, ids=ids, \
scores=scores, scores_lod=[scores@LOD0, scores@LOD1]) {attrs!r}
  return word, word@LOD0, word@LOD1, score, parent
}}
"""


def session(proto: Any) -> Any:
    """ONNX Runtime's session of a model that passes ONNX's full check."""
    onnx.checker.check_model(proto, full_check=True)
    return onnxruntime.InferenceSession(proto.SerializeToString())


@pytest.mark.parametrize("accumulated", [False, True])
@pytest.mark.parametrize("width", [1, 4])
def test_the_best_candidates_of_each_source(width: int, accumulated: bool) -> None:
    """Equal scores, finished rows, sources without rows and sources that are all finished."""
    attrs = {"beam_size": 3, "end_id": 0, "level": 0, "is_accumulated": accumulated}
    graph = parse(SEARCH.format(width=width, attrs=attrs))
    (op,) = graph.ops()
    run = session(onnx_model(graph, {}))
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sizes = [1, *rng.integers(0, 4, 2)]
        rows = sum(sizes)
        levels = [np.cumsum([0, *sizes]), np.arange(rows + 1)]
        scores = rng.integers(1, 6, (rows, width)).astype(np.float32)
        feed = {
            "pre_ids": rng.integers(0, 2 + seed % 3, (rows, 1)),
            "pre_scores": -rng.integers(0, 5, (rows, 1)).astype(np.float32),
            "ids": rng.integers(0, 9, (rows, width)),
            "scores": -scores if accumulated else scores,
        }
        expected = op.defn.numpy(**feed, scores_lod=levels)
        offsets = {f"scores@LOD{number}": level for number, level in enumerate(levels)}
        inputs = {each.name: (feed | offsets)[each.name] for each in run.get_inputs()}
        word, outer, inner, score, parent = run.run(None, inputs)
        np.testing.assert_array_equal(word, expected["selected_ids"])
        np.testing.assert_array_equal(outer, expected["selected_ids_lod"][0])
        np.testing.assert_array_equal(inner, expected["selected_ids_lod"][1])
        np.testing.assert_allclose(score, expected["selected_scores"], 1e-6)
        np.testing.assert_array_equal(parent, expected["parent_idx"])


def saved_search(folder: Path) -> None:
    """Save a model that searches with states that follow their beams, in a `While`."""
    layers, beam = fluid.layers, 3
    start = fluid.data("start", [None, 5], "float32")
    first = fluid.data("first", [None, 1], "int64", lod_level=2)
    score = fluid.data("score", [None, 1], "float32", lod_level=2)
    step, last = (layers.fill_constant([1], "int64", number) for number in (0, 4))
    states, words, sums = (layers.array_write(each, step) for each in (start, first, score))
    going = layers.less_than(step, last)
    with layers.While(going).block():
        before, total = layers.array_read(words, step), layers.array_read(sums, step)
        state = layers.sequence_expand(layers.array_read(states, step), total)
        state = layers.fc([state, layers.embedding(before, [6, 4])], 5, act="tanh")
        guess = layers.fc(state, 6, act="softmax")
        likely, which = layers.topk(layers.lod_reset(guess, y=total), beam)
        both = layers.elementwise_add(layers.log(likely), layers.reshape(total, [-1]), axis=0)
        best, reached = layers.beam_search(before, total, which, both, beam, 0)
        layers.increment(step)
        for value, array in ((best, words), (reached, sums), (state, states)):
            layers.array_write(value, step, array)
        more = layers.logical_not(layers.is_empty(best))
        layers.logical_and(layers.less_than(step, last), more, out=going)
    found = layers.beam_search_decode(words, sums, beam, 0)
    executor = fluid.Executor(fluid.CPUPlace())
    fluid.default_startup_program().random_seed = 3
    executor.run(fluid.default_startup_program())
    names = ["start", "first", "score"]
    fluid.io.save_inference_model(str(folder), names, list(found), executor)


def test_a_search_exports_with_its_loop_and_its_sentences(
    tmp_path: Path, fresh_programs: object
) -> None:
    saved_search(tmp_path / "search")
    fluid.onnx.export(str(tmp_path / "search"), tmp_path / "search.onnx")
    run = session(onnx.load(str(tmp_path / "search.onnx")))
    predictor, place = fluid.create_predictor(str(tmp_path / "search")), fluid.CPUPlace()
    for sources in (1, 3, 4):
        start = np.random.default_rng(sources).normal(0, 3, (sources, 5)).astype(np.float32)
        first, score = np.full((sources, 1), 2), np.zeros((sources, 1), np.float32)
        once = [[1] * sources] * 2
        feed = {"start": start} | {
            name: fluid.create_lod_tensor(value, once, place)
            for name, value in (("first", first), ("score", score))
        }
        ours = predictor.run(feed)
        arrays = {"start": start, "first": first, "score": score}
        arrays |= {
            f"{name}@LOD{level}": np.arange(sources + 1)
            for name in ("first", "score")
            for level in (0, 1)
        }
        inputs = {each.name: arrays[each.name] for each in run.get_inputs()}
        words, outer, inner, scores, *_ = run.run(None, inputs)
        np.testing.assert_array_equal(words, np.asarray(ours[0]))
        assert [outer.tolist(), inner.tolist()] == ours[0].lod()
        np.testing.assert_allclose(scores, np.asarray(ours[1]), 1e-5, 1e-6)
