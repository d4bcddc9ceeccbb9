"""Non-maximum suppression in ONNX: the boxes that the op keeps, in its order."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from compiler.codegen.onnx.export import onnx_model
from compiler.ir.text.parser import parse

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

GRAPH = """graph main {{
  feed boxes: f32[N, 20, 4]
  feed scores: f32[N, 3, 20]
  ({outputs}) = {op}(BBoxes=boxes, Scores=scores) {attrs!r}
  return out, out@LOD0{more}
}}
"""


def graph_of(op: str, attrs: dict[str, Any]) -> Any:
    outputs = "Out=out: f32[?, 6], Out_lod=out@LOD0: i64[{}]".format(
        "?" if op == "multiclass_nms" else "N+1"
    )
    if op != "multiclass_nms":
        outputs += ", Index=index: i32[?, 1], Index_lod=index@LOD0: i64[N+1]"
    more = "" if op == "multiclass_nms" else ", index"
    return parse(GRAPH.format(op=op, outputs=outputs, attrs=attrs, more=more))


def drawn(seed: int, normalized: bool) -> dict[str, Any]:
    """Boxes of which many overlap, some less than a pixel apart, and scores with ties."""
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 12, (2, 20, 2)) * 0.5
    sizes = rng.integers(0, 8, (2, 20, 2)) * 0.5
    boxes = np.concatenate([corners, corners + sizes], axis=-1).astype(np.float32)
    scores = rng.integers(0, 12, (2, 3, 20)).astype(np.float32) / 12
    return {"boxes": boxes / (1 if not normalized else 10), "scores": scores}


@pytest.mark.parametrize("op", ["multiclass_nms", "multiclass_nms2"])
def test_suppression_keeps_the_boxes_of_the_op(op: str) -> None:
    cases = product((True, False), (1.0, 0.9), (-1, 7), (-1, 9), (0.2, 0.99), (-1, 1))
    for seed, (normalized, eta, most, top, least, background) in [*enumerate(cases)][::3]:
        attrs = {
            "normalized": normalized, "nms_eta": eta, "keep_top_k": most, "nms_top_k": top,
            "score_threshold": least, "background_label": background, "nms_threshold": 0.55,
        }  # fmt: skip
        graph = graph_of(op, attrs)
        feed = drawn(seed, normalized)
        (node,) = graph.ops()
        expected = node.defn.numpy(feed["boxes"], None, feed["scores"])
        proto = onnx_model(graph, {})
        run = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feed)
        names = ("Out", "Out_lod", "Index")[: len(run)]
        for name, result in zip(names, run, strict=True):
            array = expected[name][0] if name == "Out_lod" else expected[name]
            np.testing.assert_array_equal(result, array, err_msg=f"{name} {attrs}")


LOCALITY = """graph main {{
  feed boxes: f32[N, 20, 4]
  feed scores: f32[N, 1, 20]
  (Out=out: f32[?, 6], Out_lod=out@LOD0: i64[?]) = locality_aware_nms(BBoxes=boxes, \
Scores=scores) {attrs!r}
  return out, out@LOD0
}}
"""


def test_neighbours_are_merged_before_boxes_are_suppressed() -> None:
    cases = product((True, False), (1.0, 0.9), (-1, 7), (-1, 9), (0.2, 20.0))
    for seed, (normalized, eta, most, top, least) in [*enumerate(cases)][::3]:
        attrs = {
            "normalized": normalized, "nms_eta": eta, "keep_top_k": most, "nms_top_k": top,
            "score_threshold": least, "background_label": -1, "nms_threshold": 0.3,
        }  # fmt: skip
        graph = parse(LOCALITY.format(attrs=attrs))
        (node,) = graph.ops()
        drawn_boxes = drawn(seed, normalized)
        order = np.argsort(drawn_boxes["boxes"][..., 0], axis=1)[..., None]
        boxes = np.take_along_axis(drawn_boxes["boxes"], order, axis=1)
        scores = drawn_boxes["scores"][:, :1] + np.float32(0.1)
        expected = node.defn.numpy(boxes, scores)
        proto = onnx_model(graph, {})
        onnx.checker.check_model(proto, full_check=True)
        runtime = onnxruntime.InferenceSession(proto.SerializeToString())
        out, offsets = runtime.run(None, {"boxes": boxes, "scores": scores})
        np.testing.assert_array_equal(offsets, expected["Out_lod"][0], err_msg=f"{attrs}")
        np.testing.assert_allclose(out, expected["Out"], 1e-4, 1e-5, err_msg=f"{attrs}")
