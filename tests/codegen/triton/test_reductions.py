"""Reductions on the device take the form that their shape asks for, and give the same in each."""

import numpy as np
import pytest

import runtime
from compiler.codegen.kernel.body import KernelBody, Ref
from compiler.codegen.triton.tiling.schedules import choose_schedule
from compiler.codegen.triton.tiling.strides import index_stride
from compiler.ir.dims import Dim
from tests.codegen.test_triton import compare, module_of

pytestmark = pytest.mark.device

N = Dim.named("N")

ROWS = """graph main {{
  feed x: f32[{rows}, {columns}]
  (Out=y: f32[{rows}, {columns}]) = softmax(X=x)
  (Out=s: f32[{rows}]) = reduce_sum(X=y) {{'dim': [1]}}
  return y, s
}}
"""
WHOLE = """graph main {{
  feed x: f32[{shape}]
  (Out=a: f32[1]) = mean(X=x)
  (Out=b: f32[1]) = reduce_max(X=x) {{'reduce_all': True}}
  (Out=c: f32[1]) = frobenius_norm(X=x) {{'reduce_all': True}}
  (Out=d: bool[1]) = isfinite(X=x)
  return a, b, c, d
}}
"""
COLUMNS = """graph main {{
  feed x: f32[{shape}]
  (Out=a: f32[{left}]) = reduce_sum(X=x) {{'dim': {axes}}}
  (Out=b: f32[{left}]) = reduce_min(X=x) {{'dim': {axes}}}
  return a, b
}}
"""


def launches(module):
    """How many kernels a step of a module launches."""
    return module.source.count("INDEX=INDEX")


@pytest.mark.parametrize(
    ("rows", "columns", "count"),
    [(3, 1, 2), (3, 1000, 2), (140, 5000, 2), (67, 33001, 2), (2, 70001, 7)],
)
def test_reduction_schedules_persistent_looped_split(rows, columns, count):
    module = compare(ROWS.format(rows=rows, columns=columns), steps=1, rtol=1e-4)
    assert launches(module) == count
    assert ("num_warps" in module.source) == (columns == 5000)
    assert ("for start in range" in module.source) == (columns in (5000, 33001))


@pytest.mark.parametrize("shape", ["5", "3, 100, 347", "N, 3, 1013"])
def test_long_sums_are_made_of_parts(shape):
    module = compare(WHOLE.format(shape=shape), size=2, rtol=1e-4)
    assert launches(module) == (4 if shape == "5" else 8)
    assert "atomic" not in module.source


@pytest.mark.parametrize(
    ("shape", "axes", "left"),
    [
        ("3000, 70", [0], "70"),
        ("70, 2500", [0], "2500"),
        ("N, 33, 700", [0], "33, 700"),
        ("9, 3000, 7", [1], "9, 7"),
        ("40, 33, 20, 21", [0, 2, 3], "33"),
        ("3000, 2, 50", [0, 2], "2"),
    ],
)
def test_reductions_over_any_axes(shape, axes, left):
    compare(COLUMNS.format(shape=shape, axes=axes, left=left), steps=1, rtol=1e-4)


def test_many_long_columns_have_parts():
    text = COLUMNS.format(shape="16384, 4096", axes=[0], left="4096")
    assert module_of(text).source.count("[(1024,)]") == 2
    short = COLUMNS.format(shape="200, 4096", axes=[0], left="4096")
    assert "parts" not in module_of(short).source


def test_a_position_needs_no_cast():
    text = """graph main {
  feed x: f32[3, 5]
  (Out=a: i64[3]) = arg_max(X=x) {'axis': 1}
  (Out=b: i64[5]) = arg_min(X=x) {'axis': 0}
  return a, b
}
"""
    compare(text)


class TestForms:
    def kernel(self, shape, size, at):
        kernel = KernelBody("k", shape)
        r = kernel.loop(size)
        x = Ref(kernel, None, tuple(size if axis == "r" else shape[axis] for axis in at))
        value = x[tuple(r if axis == "r" else kernel.indices[axis] for axis in at)]
        kernel.store(Ref(kernel, None, tuple(shape)), kernel.indices, kernel.sum(value, r))
        return kernel

    @pytest.fixture(autouse=True)
    def operands(self, monkeypatch):
        from compiler.codegen.kernel.body import Ref as Seen
        from compiler.ir.types import DType, TensorType

        monkeypatch.setattr(Seen, "type", property(lambda s: TensorType(DType.FP32, s.shape)))

    def test_adjacent_elements_are_loaded_coalesced(self):
        assert not choose_schedule(self.kernel((100,), 50, (0, "r"))).across
        assert choose_schedule(self.kernel((100,), 50, ("r", 0))).across

    def test_few_rows_get_a_program_each(self):
        assert choose_schedule(self.kernel((132,), 1024, (0, "r"))).elements == 1
        assert choose_schedule(self.kernel((10**6,), 64, (0, "r"))).elements == 64
        assert choose_schedule(self.kernel((N,), 64, (0, "r"))).elements == 64

    def test_steps(self):
        kernel = KernelBody("k", (4, 6))
        i, j = kernel.indices
        r = kernel.loop(N * 6)
        a, b = kernel.unravel(r, (N, 6))
        assert index_stride(i * 6 + j, 1, None) == 1
        assert index_stride(i * 6 + j, 0, None) == 6
        assert (
            index_stride(a, None, 0),
            index_stride(b, None, 0),
            index_stride(r * 3, None, 0),
        ) == (0, 1, 3)
        assert index_stride(r * r, None, 0) is None


LAYER = """graph main {{
  feed x: f32[{rows}, {columns}]
  (Y=y: f32[{rows}, {columns}], Mean=m: f32[{rows}], Variance=v: f32[{rows}]) = layer_norm(X=x) \
{{'begin_norm_axis': 1, 'epsilon': 0.00001}}
  return y, m, v
}}
"""
INSTANCE = """graph main {{
  feed x: f32[{rows}, 1, {columns}]
  param s: f32[1]
  param b: f32[1]
  (Y=y: f32[{rows}, 1, {columns}], SavedMean=m: f32[{rows}], SavedVariance=v: f32[{rows}]) = \
instance_norm(X=x, Scale=s, Bias=b)
  return y
}}
"""
GROUP = """graph main {{
  feed x: f32[{rows}, 2, {columns}, 1]
  (Y=y: f32[{rows}, 2, {columns}, 1], Mean=m: f32[{rows}, 1], Variance=v: f32[{rows}, 1]) = \
group_norm(X=x) {{'groups': 1}}
  return y
}}
"""


@pytest.mark.parametrize("text", [LAYER, INSTANCE, GROUP], ids=["layer", "instance", "group"])
@pytest.mark.parametrize(("rows", "columns"), [(5, 700), (67, 8500), (2, 30000), (3, "N")])
def test_statistics_keep_their_digits_where_means_are_large(text, rows, columns):
    """Mean 1e4, deviation 1: a sum of squares of float32 would have no digit left."""
    module = module_of(text.format(rows=rows, columns=columns))
    shape = [1237 if size == "N" else int(size) for size in map(str, module.feeds[0].shape)]
    x = (1e4 + np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    one, none = np.ones(1, np.float32), np.zeros(1, np.float32)
    params = {"s": one, "b": none} if text is INSTANCE else {}
    y, *told = runtime.load(module, runtime.CUDAPlace(0), params)({"x": x})
    wide = x.astype(np.float64).reshape(rows, -1)
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y.reshape(rows, -1), normal, atol=2e-3)
    for found, want in zip(told, (wide.mean(1), wide.var(1)), strict=False):
        np.testing.assert_allclose(found, want, rtol=1e-4)
