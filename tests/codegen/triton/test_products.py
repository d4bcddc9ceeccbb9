"""Kernels of products that also sum the columns of a factor, as the gradient of a bias does."""

import pytest

from tests.codegen.test_triton import compare

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

GRADIENTS = """graph main {{
  feed x: {t}[{rows}, {inner}]
  feed g: {t}[{rows}, {columns}]
  param w: {t}[{inner}, {columns}]
  param b: {t}[{columns}]
  (X@GRAD=dx: {t}[{rows}, {inner}], Y@GRAD=dw: {t}[{inner}, {columns}]) = \
mul_grad(Out@GRAD=g, X=x, Y=w)
  (Y@GRAD=db: {t}[{columns}]) = elementwise_add_grad(Out@GRAD=g, X=g, Y=b)
  return dx, dw, db
}}
"""


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "launches"),
    [(1, 1, 1, 2), (37, 19, 70, 2), ("N", 65, 33, 2), (2054, 9, 17, 3)],
)
@pytest.mark.parametrize("t", ["f32", "bf16"])
def test_the_kernel_of_a_weight_sums_the_gradient_of_its_bias(t, rows, inner, columns, launches):
    tolerance = {"rtol": 1e-4} if t == "f32" else {"rtol": 2e-2, "atol": 1e-2}
    text = GRADIENTS.format(t=t, rows=rows, inner=inner, columns=columns)
    source = compare(text, size=130, steps=1, **tolerance).source
    assert source.count("INDEX=INDEX") == launches
    assert source.count("# sums of columns") == 1
