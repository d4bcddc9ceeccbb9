"""Kernels on a GPU give the reference's numbers where small arrays are beyond every threshold.

They run in Triton's interpreter. `tools.verify.size_mutants` breaks the code beyond each threshold, which
these tests must notice.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from compiler.support.thresholds import all_thresholds, lowered
from tests.codegen.families.support import assert_matches_reference
from tests.codegen.test_triton import compare, module_of
from tests.ops.samples import Sample, numbers
from tests.ops.samples.norm import normalisation, scaled
from tests.ops.train.test_sparse_rows_on_device import both

pytestmark = pytest.mark.device


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Lower every threshold."""
    with lowered({name: threshold.small for name, threshold in all_thresholds().items()}):
        yield


@pytest.mark.parametrize("batch", ["13", "N"])
def test_elements(batch: str) -> None:
    compare(f"""graph main {{
  feed x: f32[{batch}, 5]
  (Out=y: f32[{batch}, 5]) = tanh(X=x)
  return y
}}
""", size=7)  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "axes", "left"),
    [("3, 103", [1], "3"), ("103, 3", [0], "3"), ("7, 3, 31", [0, 2], "3")],
)
def test_split_reductions(shape: str, axes: list[int], left: str) -> None:
    module = compare(f"""graph main {{
  feed x: f32[{shape}]
  (Out=a: f32[{left}]) = reduce_sum(X=x) {{'dim': {axes}}}
  (Out=b: f32[{left}]) = reduce_min(X=x) {{'dim': {axes}}}
  return a, b
}}
""", steps=1)  # fmt: skip
    assert "first" in module.source


@pytest.mark.parametrize(("rows", "columns", "axis"), [(3, 45, 1), (45, 3, 0)])
def test_loops_over_tiles(rows: int, columns: int, axis: int) -> None:
    module = compare(f"""graph main {{
  feed x: f32[{rows}, {columns}]
  (Out=y: f32[{rows}, {columns}]) = softmax(X=x) {{'axis': {axis}}}
  (Out=s: f32[3]) = reduce_sum(X=x) {{'dim': [{axis}]}}
  return y, s
}}
""", steps=1)  # fmt: skip
    assert "for start in range" in module.source


def test_layer_norm() -> None:
    with lowered({"unsplit_elements": 1 << 14}):
        assert_matches_reference(
            scaled("layer_norm", (3, 45), 45, begin_norm_axis=1, epsilon=1e-3), loosely=10
        )


@pytest.mark.parametrize(("batch", "index"), [("13", "tl.int64"), ("N", "else tl.int64")])
def test_indices_of_large_tensors_have_64_bits(batch: str, index: str) -> None:
    source = module_of(f"""graph main {{
  feed x: f32[{batch}, 5]
  (Out=y: f32[{batch}, 5]) = tanh(X=x)
  return y
}}
""").source  # fmt: skip
    assert any(
        line.strip().startswith("INDEX =") and line.endswith(index) for line in source.splitlines()
    )


@pytest.mark.parametrize("inner", [385, 400])
def test_split_products(inner: int) -> None:
    module = compare(f"""graph main {{
  feed x: f32[5, {inner}]
  param w: f32[{inner}, 7]
  (Out=y: f32[5, 7]) = mul(X=x, Y=w)
  return y
}}
""", steps=1, rtol=1e-4, atol=1e-4)  # fmt: skip
    assert "    first = " in module.source, "the product is split"


def test_products_behind_whole_tiles() -> None:
    compare("""graph main {
  feed x: f32[35, 9]
  param w: f32[9, 41]
  (Out=y: f32[35, 41]) = mul(X=x, Y=w)
  return y
}
""", steps=1)  # fmt: skip


def test_convolutions_in_groups() -> None:
    attrs = {"groups": 2, "paddings": [1, 1]}
    operands = {"Input": numbers(2, 4, 5, 3), "Filter": numbers(6, 2, 3, 3)}
    assert_matches_reference(Sample("conv2d", operands, attrs, ("Input", "Filter")))


def test_transposes() -> None:
    compare("""graph main {
  feed x: f32[2, 5, 7]
  (Out=y: f32[2, 7, 5]) = transpose(X=x) {'axis': [0, 2, 1]}
  return y
}
""", steps=1)  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums(axis: int) -> None:
    assert_matches_reference(Sample("cumsum", {"X": numbers(11, 9)}, {"axis": axis}, ("X",)))


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # of the interpreter
def test_sorted_rows() -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, 11)).astype(np.float32)
    assert_matches_reference(Sample("top_k", {"X": x}, {"k": 2}))
    assert_matches_reference(Sample("top_k", {"X": x}, {"k": 5}))
    assert_matches_reference(Sample("argsort", {"X": x}, {"axis": 1}))


def test_joined_and_split_rows() -> None:
    parts = [numbers(9, n, seed=n) for n in (3, 5, 2, 4, 1)]
    assert_matches_reference(Sample("concat", {"X": parts}, {"axis": 1}, ("X",)))
    assert_matches_reference(
        Sample("split", {"X": numbers(9, 10)}, {"axis": 1, "sections": [3, 5, 2]}, ("X",))
    )


def test_rows_of_several_chunks() -> None:
    rows = np.random.default_rng(1).integers(0, 9, 27)
    mine, theirs = both("adagrad_rows", 9, 2, rows)
    for name, array in theirs.items():
        np.testing.assert_allclose(mine[name], array, rtol=2e-5, atol=1e-6, err_msg=name)


def test_windows() -> None:
    attrs = {"pooling_type": "avg", "ksize": [2, 3], "strides": [2, 2]}
    assert_matches_reference(Sample("pool2d", {"X": numbers(2, 3, 6, 7)}, attrs, ("X",)))


def test_batch_norm() -> None:
    assert_matches_reference(normalisation((3, 4, 5, 2), 4, data_layout="NCHW"), loosely=10)
