"""Products and convolutions of a device go on with what follows them, in their own kernel."""

import pytest

from tests.codegen.test_triton import compare

pytest.importorskip("triton")
pytest.importorskip("torch")

CONVOLUTION = """graph main {
  feed x: f32[N, 3, 6, 6]
  feed r: f32[N, 4, 6, 6]
  param w: f32[4, 3, 3, 3]
  param b: f32[4]
  (Output=a: f32[N, 4, 6, 6]) = conv2d(Input=x, Filter=w) {'paddings': [1, 1]}
  (Out=c: f32[N, 4, 6, 6]) = elementwise_add(X=a, Y=b) {'axis': 1}
  (Out=d: f32[N, 4, 6, 6]) = elementwise_add(X=c, Y=r)
  (Out=e: f32[N, 4, 6, 6]) = relu(X=d)
  return e
}
"""

PRODUCT = """graph main {
  feed x: f32[N, 5, 7]
  param w: f32[7, 9]
  param b: f32[9]
  (Out=a: f32[N, 5, 9]) = mul(X=x, Y=w) {'x_num_col_dims': 2}
  (Out=c: f32[N, 5, 9]) = elementwise_add(X=a, Y=b) {'axis': 2}
  (Out=e: f32[N, 5, 9]) = tanh(X=c)
  return e
}
"""

RESIDUAL = """graph main {
  feed x: f32[N, 3, 6, 6]
  param w: f32[3, 3, 3, 3]
  (Out=y: f32[N, 3, 6, 6]) = tanh(X=x)
  (Output=a: f32[N, 3, 6, 6]) = conv2d(Input=y, Filter=w) {'paddings': [1, 1]}
  (Out=d: f32[N, 3, 6, 6]) = elementwise_add(X=a, Y=y)
  return d
}
"""


@pytest.mark.parametrize("text", [CONVOLUTION, PRODUCT], ids=["convolution", "product"])
def test_bias_residual_and_activation_are_one_kernel(text):
    assert len(compare(text).kernels) == 1
    compare(text, size=7)


def test_a_tail_waits_where_it_writes_over_what_the_head_reads():
    compare(RESIDUAL)
    compare(RESIDUAL, size=5)
