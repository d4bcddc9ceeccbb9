"""Products and convolutions of a device go on with what follows them, in their own kernel."""

import pytest

from tests.codegen.test_triton import compare

pytest.importorskip("triton")
pytest.importorskip("torch")

pytestmark = pytest.mark.device

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

SHAPE_ONLY = """graph main {
  feed x: f32[N, 5]
  param w: f32[5, 3]
  (Out=a: f32[N, 3]) = mul(X=x, Y=w)
  (Out=c: f32[N, 3]) = fill_zeros_like(X=a)
  (Out=e: f32[N, 3]) = scale(X=c) {'bias': 1.0}
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


NORM = """graph main {{
  feed x: f32[{shape}]
  feed r: f32[{shape}]
  param s: f32[4]
  param b: f32[4]
  param m: f32[4]
  param v: f32[4]
  (MeanOut=m#1: f32[4] over m, SavedMean=sm: f32[4], SavedVariance=sv: f32[4], \
VarianceOut=v#1: f32[4] over v, Y=y: f32[{shape}]) = batch_norm(Bias=b, Mean=m, Scale=s, \
Variance=v, X=x) {{'data_layout': '{layout}', 'is_test': {tested}}}
  (Out=a: f32[{shape}]) = elementwise_add(X=y, Y=r)
  (Out=z: f32[{shape}]) = relu(X=a)
  (Out=g: f32[{shape}]) = scale(X=z) {{'scale': 0.5}}
  (Bias@GRAD=db: f32[4], Scale@GRAD=ds: f32[4], X@GRAD=dx: f32[{shape}]) = \
batch_norm_grad(Bias=b, SavedMean=sm, SavedVariance=sv, Scale=s, X=x, Y@GRAD=g) \
{{'data_layout': '{layout}', 'is_test': {tested}}}
  (Out=t: f32[{shape}]) = tanh(X=dx)
  return z, t, ds, db, m#1, v#1
}}
"""

GRADIENT = """graph main {
  feed x: f32[N, 4, 5, 5]
  feed g: f32[N, 6, 5, 5]
  param w: f32[6, 4, 3, 3]
  (Out=z: f32[N, 4, 5, 5]) = relu(X=x)
  (Filter@GRAD=dw: f32[6, 4, 3, 3], Input@GRAD=dz: f32[N, 4, 5, 5]) = \
conv2d_grad(Filter=w, Input=z, Output@GRAD=g) {'paddings': [1, 1]}
  (X@GRAD=dx: f32[N, 4, 5, 5]) = relu_grad(Out=z, Out@GRAD=dz)
  return dx, dw
}
"""


@pytest.mark.parametrize("tested", [False, True])
@pytest.mark.parametrize(("layout", "shape"), [("NCHW", "N, 4, 3, 5"), ("NHWC", "N, 3, 5, 4")])
def test_a_batch_norm_is_fused_with_a_residual_and_an_activation(layout, shape, tested):
    text, far = NORM.format(layout=layout, shape=shape, tested=tested), {"rtol": 2e-4, "atol": 2e-5}
    module = compare(text, **far)
    assert not any(name.startswith(("tanh", "relu", "elementwise")) for name in names_of(module))
    compare(text.replace("N, ", "700, "), **far)


@pytest.mark.parametrize("tested", [False, True])
def test_unread_statistics_have_no_memory(tested):
    text = NORM.format(layout="NHWC", shape="N, 3, 5, 4", tested=tested)
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("  (Bias@GRAD")]
    kept = "".join(line for line in lines if "tanh" not in line and "scale(" not in line)
    compare(kept.replace("return z, t, ds, db, ", "return z, "), rtol=2e-4)


PRODUCT_GRADIENTS = """graph main {
  feed x: f32[N, 5, 7]
  feed r: f32[N, 5, 7]
  feed g: f32[N, 5, 9]
  param w: f32[7, 9]
  param v: f32[7, 9]
  (Out=z: f32[N, 5, 7]) = relu(X=x)
  (X@GRAD=a: f32[N, 5, 7], Y@GRAD=dw: f32[7, 9]) = \
mul_grad(Out@GRAD=g, X=z, Y=w) {'x_num_col_dims': 2}
  (X@GRAD=b: f32[N, 5, 7], Y@GRAD=dv: f32[7, 9]) = \
mul_grad(Out@GRAD=g, X=z, Y=v) {'x_num_col_dims': 2}
  (Out=dz: f32[N, 5, 7]) = sum(X=[a, b, r])
  (X@GRAD=dx: f32[N, 5, 7]) = relu_grad(Out=z, Out@GRAD=dz)
  return dx, dw, dv
}
"""


@pytest.mark.parametrize("text", [GRADIENT, PRODUCT_GRADIENTS], ids=["convolution", "product"])
def test_the_gradient_of_an_anchor_is_fused_with_that_of_an_activation(text):
    module = compare(text, rtol=1e-4)
    assert {"relu_grad", "sum"}.isdisjoint(names_of(module))
    compare(text, size=7, rtol=1e-4)


def names_of(module):
    return [kernel.name for kernel in module.kernels]


@pytest.mark.parametrize("text", [CONVOLUTION, PRODUCT], ids=["convolution", "product"])
def test_bias_residual_and_activation_are_one_kernel(text):
    assert len(set(names_of(compare(text)))) == 1
    compare(text, size=7)


def test_epilogue_in_place_waits_for_anchor_reads():
    compare(RESIDUAL)
    compare(RESIDUAL, size=5)


def test_zeros_like_a_product_are_not_its_epilogue():
    """It had a kernel of a product that stores none."""
    compare(SHAPE_ONLY)


ROWS = """graph main {{
  feed x: f32[N, 37]
  feed y: f32[N, 37]
  {op}
  (Out=b: f32[N, 37]) = elementwise_mul(X=a, Y=y)
  (Out=c: f16[N, 37]) = cast(X=b) {{'in_dtype': 5, 'out_dtype': 4}}
  return c
}}
"""
NORM_OF_ROWS = "(Y=a: f32[N, 37], Mean=m: f32[N], Variance=v: f32[N]) = layer_norm(X=x)"


@pytest.mark.parametrize("op", [
    "(Out=a: f32[N, 37]) = softmax(X=x)", "(Out=a: f32[N, 37]) = log_softmax(X=x)", NORM_OF_ROWS,
])  # fmt: skip
def test_pointwise_ops_after_one_of_rows_join_its_kernel(op):
    module = compare(ROWS.format(op=op), rtol=2e-3, atol=1e-5)
    assert len(module.kernels) == 1


@pytest.mark.parametrize("op", ["(Out=a: f32[N, 37]) = softmax(X=x)", NORM_OF_ROWS])
def test_a_result_that_later_kernels_read_is_stored_by_the_kernel_that_goes_on(op):
    text = ROWS.format(op=op).replace(
        "return c", "(Out=d: f32[N, 37]) = softmax(X=a)\n  return a, c, d"
    )
    module = compare(text, rtol=2e-3, atol=1e-5)
    assert names_of(module)[0].endswith("_elementwise_mul_cast")
    assert len(module.kernels) == 2


def test_a_result_that_is_read_before_its_epilogue_could_run_is_not_fused():
    text = ROWS.format(op="(Out=a: f32[N, 37]) = softmax(X=x)").replace(
        "feed y: f32[N, 37]", "param w: f32[37, 37]"
    )
    before = "(Out=b:"
    text = text.replace(before, f"(Out=y: f32[N, 37]) = mul(X=a, Y=w)\n  {before}")
    module = compare(text, rtol=2e-3, atol=1e-5)
    assert names_of(module)[0] == "softmax"


GRADIENTS_OF_ROWS = """graph main {{
  feed x: f32[N, 37]
  feed g: f32[N, 37]
  {op}
  (Out=h: f16[N, 37]) = cast(X=dx) {{'in_dtype': 5, 'out_dtype': 4}}
  (Out=s: f32[N, 37]) = sum(X=[dx, g])
  (Out=t: f32[N, 37]) = softmax(X=s)
  return h, dx, t
}}
"""
SOFTMAX_GRAD = """(Out=a: f32[N, 37]) = softmax(X=x)
  (X@GRAD=dx: f32[N, 37]) = softmax_grad(Out=a, Out@GRAD=g)"""
NORM_GRAD = f"""{NORM_OF_ROWS}
  (X@GRAD=dx: f32[N, 37]) = layer_norm_grad(Mean=m, Variance=v, X=x, Y@GRAD=g)"""


@pytest.mark.parametrize("op", [SOFTMAX_GRAD, NORM_GRAD])
def test_pointwise_ops_after_a_gradient_of_rows_join_its_kernel(op):
    module = compare(GRADIENTS_OF_ROWS.format(op=op), rtol=2e-3, atol=1e-5)
    assert names_of(module)[1].endswith("_grad_cast")
    compare(GRADIENTS_OF_ROWS.format(op=op), size=1, rtol=2e-3, atol=1e-5)
