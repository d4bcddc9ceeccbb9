"""One kernel has the gradients of a layer_norm by rows, and sums those of its vectors."""

import pytest

from compiler.support.thresholds import lowered
from tests.codegen.test_triton import compare

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

GRADIENTS = """graph main {{
  feed x: {t}[{rows}, {columns}]
  feed g: {t}[{rows}, {columns}]
  feed r: {t}[{rows}, {columns}]
  param s: {t}[{columns}]
  param b: {t}[{columns}]
  (Y=y: {t}[{rows}, {columns}], Mean=m: {t}[{rows}], Variance=v: {t}[{rows}]) = \
layer_norm(X=x, Scale=s, Bias=b)
  (X@GRAD=dx: {t}[{rows}, {columns}], Scale@GRAD=ds: {t}[{columns}], Bias@GRAD=db: {t}[{columns}]) \
= layer_norm_grad(X=x, Scale=s, Bias=b, Mean=m, Variance=v, Y@GRAD=g)
  (Out=dz: {t}[{rows}, {columns}]) = elementwise_add(X=dx, Y=r)
  return dz, ds, db
}}
"""


@pytest.mark.parametrize(
    ("t", "rows", "columns"),
    [("f32", 1, 1), ("f32", 5, 33), ("bf16", 67, 40), ("f32", "N", 129), ("f32", 2200, 4)],
)
def test_a_gradient_of_rows_sums_over_them_in_one_pass(t, rows, columns):
    tolerance = {"rtol": 2e-4, "atol": 2e-5} if t == "f32" else {"rtol": 2e-2, "atol": 2e-2}
    text = GRADIENTS.format(t=t, rows=rows, columns=columns)
    with lowered({"row_sum_warps": 16}):
        source = compare(text, size=150, steps=1, **tolerance).source
    assert source.count("INDEX=INDEX") == 3
    assert source.count("for start in range(program * LANES") == 1


def test_rows_that_fit_into_no_tile_are_read_twice():
    source = compare(GRADIENTS.format(t="f32", rows=3, columns=17000), steps=1, rtol=1e-3).source
    assert "program * LANES" not in source
