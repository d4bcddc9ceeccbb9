"""Layers of arithmetic: the ops they append, the shapes they have, what they refuse."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import Variable, default_main_program, default_startup_program

pytestmark = pytest.mark.usefixtures("fresh_programs")


def data(name: str, *shape: int, dtype: str = "float32") -> Variable:
    return layers.data(name, list(shape), append_batch_size=False, dtype=dtype)


def x() -> Variable:
    return data("x", -1, 4)


def y() -> Variable:
    return data("y", -1, 4)


def ops() -> list[str]:
    return [op.type for op in default_main_program().global_block().ops]


def first(result: Any) -> Variable:
    return result[0] if isinstance(result, tuple) else result


ONE_TENSOR = """
sigmoid logsigmoid exp tanh atan tanh_shrink sqrt rsqrt abs ceil floor cos acos asin sin round
reciprocal square softplus softsign log log1p relu erf gelu elu relu6 brelu selu stanh swish
hard_shrink hard_sigmoid hard_swish leaky_relu mish soft_relu softmax softshrink thresholded_relu
sign cumsum
""".split()


@pytest.mark.parametrize("name", ONE_TENSOR)
def test_functions_of_one_tensor(name: str) -> None:
    out = getattr(layers, name)(x())
    assert ops() == [name]
    assert (out.name, out.shape) == (f"{name}_0.tmp_0", (-1, 4))


CALLS: list[tuple[Callable[[], Any], list[str], str, tuple[int, ...]]] = [
    (lambda: layers.prelu(x(), "all"), ["prelu"], "prelu_0.tmp_0", (-1, 4)),
    (lambda: layers.maxout(data("i", -1, 6, 3, 3), 2), ["maxout"], "maxout_0.tmp_0", (-1, 3, 3, 3)),
    (lambda: layers.log_softmax(x()), ["softmax", "log"], "log_softmax_0.tmp_1", (-1, 4)),
    (
        lambda: layers.log_softmax(x(), 0, "float64"),
        ["cast", "softmax", "log"],
        "log_softmax_0.tmp_2",
        (-1, 4),
    ),
    (lambda: layers.logsumexp(x(), 1), ["exp", "reduce_sum", "log"], "log_0.tmp_0", (-1,)),
    (lambda: layers.reduce_min(x(), -1, True), ["reduce_min"], "reduce_min_0.tmp_0", (-1, 1)),
    (lambda: layers.reduce_prod(x()), ["reduce_prod"], "reduce_prod_0.tmp_0", (1,)),
    (
        lambda: layers.reduce_all(data("b", -1, 4, dtype="bool"), 1),
        ["reduce_all"],
        "reduce_all_0.tmp_0",
        (-1,),
    ),
    (lambda: layers.clamp(x(), -1.0), ["clip"], "clamp_0.tmp_0", (-1, 4)),
    (lambda: layers.clip(x(), 0, 1, name="mine"), ["clip"], "mine", (-1, 4)),
    (lambda: layers.dot(x(), y(), name="mine"), ["dot"], "mine", (-1, 1)),
    (
        lambda: layers.addcmul(x(), x(), y(), 2.0),
        ["elementwise_mul", "scale", "elementwise_add"],
        "elementwise_add_0.tmp_0",
        (-1, 4),
    ),
    (lambda: layers.elementwise_equal(x(), y()), ["equal"], "elementwise_equal_0.tmp_0", (-1, 4)),
    (lambda: layers.l2_normalize(x(), None), ["norm"], "l2_normalize_0.tmp_0", (-1, 4)),
    (lambda: layers.cos_sim(x(), y()), ["cos_sim"], "cos_sim_0.tmp_0", (-1, 1)),
    (lambda: layers.dist(x(), y()), ["dist"], "dist_0.tmp_0", (1,)),
    (lambda: layers.kron(x(), y()), ["kron"], "kron_0.tmp_0", (-1, 16)),
    (lambda: layers.trace(data("m", 3, 4, 5), 0, 0, 2), ["trace"], "trace_0.tmp_0", (4,)),
    (lambda: layers.bmm(data("s", 2, 3, 4), data("r", 2, 4, 5)), ["bmm"], "bmm_0.tmp_0", (2, 3, 5)),
    (lambda: layers.cross(data("a", 2, 3), data("c", 2, 3)), ["cross"], "cross_0.tmp_0", (2, 3)),
    (
        lambda: layers.addmm(data("i", 1, 5), data("a", 3, 4), data("b", 4, 5), beta=0.5),
        ["addmm"],
        "addmm_0.tmp_0",
        (3, 5),
    ),
    (lambda: layers.argmax(x(), 1), ["arg_max"], "arg_max_0.tmp_0", (-1,)),
    (lambda: layers.argsort(x()), ["argsort"], "argsort_0.tmp_0", (-1, 4)),
    (lambda: layers.topk(x(), 2), ["top_k"], "top_k_0.tmp_0", (-1, 2)),
    (lambda: layers.topk(x(), data("k", 1, dtype="int32")), ["top_k"], "top_k_0.tmp_0", (-1, -1)),
    (lambda: layers.has_inf(x()), ["isinf"], "isinf_0.tmp_0", (1,)),
    (lambda: layers.has_nan(x()), ["isnan"], "isnan_0.tmp_0", (1,)),
    (lambda: layers.isfinite(x()), ["isfinite"], "isfinite_0.tmp_0", (1,)),
    (lambda: layers.allclose(x(), y()), ["allclose"], "allclose_0.tmp_0", (1,)),
]


@pytest.mark.parametrize(("call", "types", "name", "shape"), CALLS, ids=[c[2] for c in CALLS])
def test_other_layers(
    call: Callable[[], Any], types: list[str], name: str, shape: tuple[int, ...]
) -> None:
    out = first(call())
    assert ops() == types
    assert (out.name, out.shape) == (name, shape)


def test_ops_without_gradient_stop_gradients() -> None:
    for out in (*layers.argsort(x()), *layers.topk(x(), 1), layers.argmin(x())):
        assert out.stop_gradient


@pytest.mark.parametrize(
    ("mode", "shape"), [("all", (1,)), ("channel", (1, 3, 1, 1)), ("element", (1, 3, 2, 2))]
)
def test_slopes_that_prelu_learns(mode: str, shape: tuple[int, ...]) -> None:
    layers.prelu(data("i", -1, 3, 2, 2), mode)
    (alpha,) = default_main_program().all_parameters()
    assert (alpha.name, alpha.shape) == ("prelu_0.w_0", shape)
    (start,) = default_startup_program().global_block().ops
    assert (start.type, start.attr("value")) == ("fill_constant", 0.25)


def test_bilinear_tensor_product_has_a_weight_and_a_bias() -> None:
    out = layers.bilinear_tensor_product(x(), data("z", -1, 5), 6, act="relu")
    shapes = {p.name: p.shape for p in default_main_program().all_parameters()}
    prefix = "bilinear_tensor_product_0"
    assert shapes == {f"{prefix}.w_0": (6, 4, 5), f"{prefix}.b_0": (1, 6)}
    assert (ops(), out.shape) == (["bilinear_tensor_product", "relu"], (-1, 6))


def test_results_that_are_written_elsewhere() -> None:
    out = layers.create_tensor("float32")
    assert layers.log1p(x(), out=out) is out
    assert layers.kron(x(), y(), out=out) is out
    assert layers.trace(data("m", 3, 4), out=out) is out
    assert layers.logsumexp(x(), out=out) is out
    assert layers.clamp(x(), max=1.0, output=out) is out
    assert layers.addcmul(x(), x(), y(), out=out) is out


def test_options_that_are_left_out_are_the_op_s() -> None:
    layers.softshrink(x())
    layers.softshrink(x(), 0.7)
    inputs = [op.attr("lambda") for op in default_main_program().global_block().ops]
    assert inputs == [0.5, 0.699999988079071]


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: layers.log(data("i", 4, dtype="int64")), TypeError, "'x' in log must be one of float"),
    (lambda: layers.relu("x"), TypeError, "'x' in relu must be Variable, but received str"),
    (lambda: layers.maxout(x(), 2, axis=2), ValueError, "axis of maxout must be 1"),
    (lambda: layers.mish(x(), -1), ValueError, "threshold of mish must be above 0"),
    (lambda: layers.prelu(x(), "row"), ValueError, "mode of prelu must be all, channel or element"),
    (lambda: layers.prelu(data("v", 4), "channel"), ValueError, "takes two axes or more"),
    (lambda: layers.clamp(x()), ValueError, "clamp needs a min or a max"),
    (lambda: layers.clamp(x(), "a"), TypeError, "'min' in clamp must be float or Variable"),
    (lambda: layers.reduce_any(x()), TypeError, "'input' in reduce_any must be one of bool"),
    (lambda: layers.reduce_sum(x() > 0.0), TypeError, "'input' in reduce_sum must be one of float"),
    (lambda: layers.t(data("m", 2, 3, 4)), ValueError, "t takes a rank of 1 or 2"),
    (lambda: layers.dist(x(), y(), "2"), TypeError, "'p' in dist must be float"),
    (lambda: layers.allclose(x(), y(), 1), TypeError, "'rtol' in allclose must be float"),
    (lambda: layers.addcmul(x(), x(), y(), 1), TypeError, "'value' in addcmul must be float"),
    (lambda: layers.pow(x(), data("f", 1, dtype="int32")), TypeError, "'factor' in pow must be"),
    (lambda: layers.sum([x(), data("b", 4, dtype="bool")]), TypeError, "'x' in sum must be one of"),
    (lambda: layers.argmax(data("b", 4, dtype="bool")), TypeError, "'x' in argmax must be one of"),
    (lambda: layers.sign([1.0]), TypeError, "'x' in sign must be Variable or ndarray"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[c[2][:40] for c in REFUSED])
def test_bad_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


# ---- numbers -------------------------------------------------------------------------------------


def run(fetch: list[Variable], **feed: Any) -> list[Any]:
    executor = fluid.Executor(fluid.CPUPlace())
    if default_startup_program().global_block().ops:
        executor.run(default_startup_program())
    return executor.run(default_main_program(), feed=feed, fetch_list=fetch)


def test_one_bound_leaves_the_other_side_open() -> None:
    inputs = np.array([[-5.0, 0.5, 5.0, 1e30]], np.float32)
    result = run([layers.clamp(x(), max=1.0), layers.clamp(x(), min=0.0)], x=inputs)
    np.testing.assert_array_equal(result[0], [[-5.0, 0.5, 1.0, 1.0]])
    np.testing.assert_array_equal(result[1], [[0.0, 0.5, 5.0, np.float32(1e30)]])


def test_swish_knows_its_beta() -> None:
    inputs = np.array([[-1.0, 0.0, 1.0, 2.0]], np.float32)
    (result,) = run([layers.swish(x(), beta=3.0)], x=inputs)
    np.testing.assert_allclose(result, inputs / (1.0 + np.exp(-3.0 * inputs)), rtol=1e-6, atol=1e-7)


def test_a_count_that_is_fed_decides_sizes() -> None:
    values, places = layers.topk(x(), data("k", 1, dtype="int32"))
    total = layers.reduce_sum(values, dim=1)
    inputs = np.array([[3.0, 1.0, 4.0, 1.5]], np.float32)
    for count, want in ((1, [4.0]), (3, [8.5])):
        result = run([values, places, total], x=inputs, k=np.array([count], np.int32))
        assert [each.shape for each in result] == [(1, count), (1, count), (1,)]
        np.testing.assert_array_equal(result[2], want)


def test_gradient_through_sorting_and_slopes() -> None:
    inputs = x()
    inputs.stop_gradient = False
    values, _ = layers.argsort(layers.prelu(inputs, "all"))
    values.stop_gradient = False
    weights = layers.assign(np.array([[1.0, 2.0, 3.0, 4.0]], np.float32))
    loss = layers.reduce_sum(layers.elementwise_mul(values, weights, axis=0))
    (slope,) = fluid.gradients([loss], [inputs])
    (result,) = run([slope], x=np.array([[2.0, -4.0, 1.0, 0.5]], np.float32))
    np.testing.assert_allclose(result, [[4.0, 0.25, 3.0, 2.0]])
