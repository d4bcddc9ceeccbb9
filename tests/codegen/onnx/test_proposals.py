"""Region proposals in ONNX: the boxes that the ops propose, in their order."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from compiler.codegen.onnx.export import onnx_model
from compiler.ir.opdef import listed
from compiler.ir.text.parser import parse

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

PROPOSALS = """graph main {{
  feed scores: f32[N, 3, 4, 5]
  feed codes: f32[N, 12, 4, 5]
  feed info: f32[N, 3]
  feed anchors: f32[4, 5, 3, 4]
  feed variances: f32[4, 5, 3, 4]
  (RpnRois=rois: f32[?, 4], RpnRoiProbs=probs: f32[?, 1], RpnRois_lod=rois@LOD0: i64[N+1],
   RpnRoiProbs_lod=probs@LOD0: i64[N+1], RpnRoisLod=ends: i64[N]) = generate_proposals(
    Scores=scores, BboxDeltas=codes, ImInfo=info, Anchors=anchors, Variances=variances) {attrs!r}
  return rois, probs, rois@LOD0, ends
}}
"""
LEVELS = """graph main {{
  feed rois: f32[R, 4]
  feed rois@LOD0: i64[N+1]
  (MultiFpnRois=[low: f32[?, 4], middle: f32[?, 4], high: f32[?, 4]],
   MultiFpnRois_lod=[low@LOD0: i64[N+1], middle@LOD0: i64[N+1], high@LOD0: i64[N+1]],
   RestoreIndex=restore: i32[R, 1]) = distribute_fpn_proposals(
    FpnRois=rois, FpnRois_lod=[rois@LOD0]) {attrs!r}
  return low, middle, high, low@LOD0, middle@LOD0, high@LOD0, restore
}}
"""
COLLECTED = """graph main {{
  feed a: f32[A, 4]
  feed a@LOD0: i64[N+1]
  feed p: f32[A, 1]
  feed b: f32[B, 4]
  feed b@LOD0: i64[N+1]
  feed q: f32[B, 1]
  (FpnRois=rois: f32[?, 4], FpnRois_lod=[rois@LOD0: i64[N+1]]) = collect_fpn_proposals(
    MultiLevelRois=[a, b], MultiLevelRois_lod=[a@LOD0, b@LOD0], MultiLevelScores=[p, q]) {attrs!r}
  return rois, rois@LOD0
}}
"""
DETECTIONS = """graph main {{
  feed b: f32[N, 9, 4]
  feed c: f32[N, 5, 4]
  feed s: f32[N, 9, 3]
  feed t: f32[N, 5, 3]
  feed e: f32[9, 4]
  feed f: f32[5, 4]
  feed info: f32[N, 3]
  (Out=out: f32[?, 6], Out_lod=[out@LOD0: i64[N+1]]) = retinanet_detection_output(
    BBoxes=[b, c], Scores=[s, t], Anchors=[e, f], ImInfo=info) {attrs!r}
  return out, out@LOD0
}}
"""


def compare(text: str, attrs: dict[str, Any], feed: dict[str, Any]) -> list[Any]:
    """ONNX Runtime's results, which must be those of the op's definition."""
    graph = parse(" ".join(text.format(attrs=attrs).split("\n   ")))
    (op,) = graph.ops()
    args = {
        slot: [feed[var.label] for var in variables]
        if op.defn.slots[slot].many or slot.endswith("_lod")
        else feed[variables[0].label]
        for slot, variables in op.inputs.items()
    }
    results = op.defn.numpy(**args)
    expected = {
        var.label: array
        for slot, variables in op.outputs.items()
        for var, array in zip(variables, listed(results[slot]), strict=True)
    }
    proto = onnx_model(graph, {})
    onnx.checker.check_model(proto, full_check=True)
    run = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feed)
    for var, result in zip(graph.results, run, strict=True):
        np.testing.assert_allclose(result, expected[var.label], 1e-5, 1e-5, err_msg=f"{attrs}")
    return run


def drawn(seed: int) -> dict[str, Any]:
    """Anchors around each place, codes that move some out of the image, and scores with ties."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 24, (4, 5, 3, 2)) * 1.0
    anchors = np.concatenate([corners, corners + rng.integers(0, 16, (4, 5, 3, 2))], axis=-1)
    feed = {
        "scores": rng.integers(0, 30, (2, 3, 4, 5)) / 30, "codes": rng.normal(0, 1, (2, 12, 4, 5)),
        "info": np.array([[30, 36, 1], [24, 28, 2]]), "anchors": anchors,
        "variances": np.full((4, 5, 3, 4), 0.2),
    }  # fmt: skip
    feed["codes"][0, :, 0, 0] = 40
    return {name: array.astype(np.float32) for name, array in feed.items()}


def test_proposals_are_those_of_the_op() -> None:
    cases = product((0.7, 0.3, 0.0), (1.0, 0.9), (0, 25), (0, 6), (0.0, 5.0))
    for seed, (threshold, eta, before, after, least) in [*enumerate(cases)][::3]:
        attrs = {
            "pre_nms_topN": before, "post_nms_topN": after, "nms_thresh": threshold,
            "min_size": least, "eta": eta,
        }  # fmt: skip
        compare(PROPOSALS, attrs, drawn(seed))


def test_boxes_go_to_the_level_of_their_size() -> None:
    sides = np.array([0, 27, 55, 55.5, 56, 111, 112, 223, 447, 900, 12, 60], np.float32)
    rois = np.stack([0 * sides, 0 * sides, sides, sides], axis=1)
    rois[-1] = [5, 5, 1, 9]
    feed = {"rois": rois, "rois@LOD0": np.array([0, 5, 5, 12])}
    attrs = {"min_level": 3, "max_level": 5, "refer_level": 4, "refer_scale": 112}
    run = compare(LEVELS, attrs, feed)
    assert [len(part) for part in run[:3]] == [7, 2, 3]


@pytest.mark.parametrize("most", [5, 50])
def test_the_best_boxes_of_all_levels_are_collected(most: int) -> None:
    rng = np.random.default_rng(most)
    feed = {
        "a": rng.random((7, 4)), "p": rng.integers(0, 4, (7, 1)) / 4,
        "b": rng.random((4, 4)), "q": rng.integers(0, 4, (4, 1)) / 4,
    }  # fmt: skip
    feed = {name: array.astype(np.float32) for name, array in feed.items()}
    feed |= {"a@LOD0": np.array([0, 3, 3, 7]), "b@LOD0": np.array([0, 0, 2, 4])}
    run = compare(COLLECTED, {"post_nms_topN": most}, feed)
    assert len(run[0]) == min(most, 11)


def test_detections_of_levels_are_those_of_the_op() -> None:
    """Scores with ties, thresholds that no score of the first level reaches, and no limits."""
    cases = product((0.3, 0.99), (1.0, 0.8), (-1, 9), (-1, 0, 4))
    for seed, (least, eta, best, kept) in [*enumerate(cases)][::2]:
        rng = np.random.default_rng(seed)
        corners = rng.integers(0, 20, (14, 2))
        anchors = np.concatenate([corners, corners + rng.integers(1, 20, (14, 2))], axis=1)
        feed = {
            "b": rng.random((2, 9, 4)) - 0.5, "s": rng.integers(0, 10, (2, 9, 3)) / 10,
            "c": rng.random((2, 5, 4)) - 0.5, "t": rng.integers(0, 10, (2, 5, 3)) / 10,
            "e": anchors[:9], "f": anchors[9:], "info": np.array([[30, 40, 1], [50, 45, 1.5]]),
        }  # fmt: skip
        attrs = {
            "score_threshold": least, "nms_top_k": best, "nms_threshold": 0.4, "nms_eta": eta,
            "keep_top_k": kept,
        }  # fmt: skip
        compare(DETECTIONS, attrs, {name: each.astype(np.float32) for name, each in feed.items()})
