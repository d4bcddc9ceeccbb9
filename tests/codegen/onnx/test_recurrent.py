"""Recurrent layers and arrays that no sample of an op exports."""

from typing import Any

import numpy as np
import pytest

from compiler.codegen.onnx.export import ExportError, onnx_model
from compiler.ir.text.parser import parse

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

LAYERS = """graph main {{
  feed x: f32[T, N, 3]
  feed h: f32[{states}, N, 2]
  feed c: f32[{states}, N, 2]
  feed w: f32[{weights}]
  (Out=y: f32[T, N, {out}], last_h=last_h: f32[{states}, N, 2],
   last_c=last_c: f32[{states}, N, 2]) = cudnn_lstm(Input=x, InitH=h, InitC=c, W=w) {attrs!r}
  return y, last_h, last_c
}}
"""
ARRAY = """graph main {{
  feed x: f32[2, N]
  feed i: i64[1]
  feed j: i64[1]
  (Out=a: f32[2, N]*) = write_to_array(X=x, I=i)
  (Out=b: f32[2, N]*) = write_to_array(X=x, I=j, Array=a)
  (Out=y: f32[{shape}]) = tensor_array_to_tensor(X=b) {attrs!r}
  return y
}}
"""


def run(text: str, feed: dict[str, Any]) -> list[Any]:
    """ONNX Runtime's results of a graph."""
    proto = onnx_model(parse(text.replace(",\n  ", ",")), {})
    onnx.checker.check_model(proto, full_check=True)
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feed)


@pytest.mark.parametrize("ways", [1, 2])
def test_layers_of_lstm(ways: int) -> None:
    rng, count = np.random.default_rng(ways), 8 * ways * (3 + 2 + 2) + 8 * ways * (2 * ways + 4)
    attrs = {"hidden_size": 2, "num_layers": 2, "is_bidirec": ways == 2, "is_test": True,
             "input_size": 3, "dropout_prob": 0.5}  # fmt: skip
    text = LAYERS.format(states=2 * ways, weights=count, out=2 * ways, attrs=attrs)
    (op,) = parse(text.replace(",\n  ", ",")).ops()
    shapes = {"x": (4, 5, 3), "h": (2 * ways, 5, 2), "c": (2 * ways, 5, 2), "w": (count,)}
    feed = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    expected = op.defn.numpy(*feed.values())
    for slot, result in zip(("Out", "last_h", "last_c"), run(text, feed), strict=True):
        np.testing.assert_allclose(result, expected[slot], 1e-5, 1e-6)


def test_dropout_between_layers_is_refused() -> None:
    attrs = {"hidden_size": 2, "num_layers": 2, "dropout_prob": 0.5}
    text = LAYERS.format(states=2, weights=120, out=2, attrs=attrs)
    with pytest.raises(ExportError, match="random numbers"):
        onnx_model(parse(text.replace(",\n  ", ",")), {})


@pytest.mark.parametrize(("axis", "stacked", "shape"), [(1, False, "2, ?"), (0, True, "?, 2, N")])
def test_items_of_an_array_are_joined(axis: int, stacked: bool, shape: str) -> None:
    text = ARRAY.format(shape=shape, attrs={"axis": axis, "use_stack": stacked})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (result,) = run(text, {"x": x, "i": np.array([0]), "j": np.array([1])})
    expected = np.stack([x, x]) if stacked else np.concatenate([x, x], axis)
    np.testing.assert_array_equal(result, expected)
