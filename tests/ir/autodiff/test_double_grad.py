"""Gradients of gradients: against finite differences of gradients, and penalties as 1.8.5 has them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError

layers = fluid.layers
STEP = 3e-3
MATRIX, PICTURE = (4, 6), (2, 3, 6, 6)
LOSSES = [1.027106, 0.961411, 0.899457, 0.840931]
CONSTANT = fluid.initializer.Constant(0.1)


def waves(*shape: int) -> np.ndarray:
    places = np.arange(np.prod(shape)).reshape(shape)
    return np.sin(places * 0.7 + len(shape)).astype(np.float32)


def squared(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """What bends, so that there is something to differentiate a second time."""
    return lambda x: layers.square(function(x, *args, **kwargs))


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    **{
        name: (getattr(layers, name), [MATRIX])
        for name in ("tanh", "sigmoid", "sqrt", "square", "elu", "exp", "log", "reciprocal")
    },
    **{name: (squared(getattr(layers, name)), [MATRIX]) for name in ("relu", "leaky_relu", "abs")},
    "mean": (squared(layers.mean), [MATRIX]),
    "reduce_sum": (squared(layers.reduce_sum, dim=1), [MATRIX]),
    "reshape": (squared(layers.reshape, [-1, 3]), [MATRIX]),
    "transpose": (squared(layers.transpose, [1, 0]), [MATRIX]),
    "unsqueeze": (squared(layers.unsqueeze, [1]), [MATRIX]),
    "flatten": (squared(layers.flatten), [PICTURE]),
    "slice": (squared(layers.slice, [0], [1], [3]), [MATRIX]),
    "expand": (squared(layers.expand, [1, 2]), [MATRIX]),
    "instance_norm": (lambda x: layers.square(layers.instance_norm(x)), [PICTURE]),
    "sums": (lambda x: layers.square(layers.sums([x, x])), [MATRIX]),
    "product": (layers.elementwise_mul, [MATRIX, MATRIX]),
    "quotient": (layers.elementwise_div, [MATRIX, MATRIX]),
    "matmul": (lambda a, b: layers.matmul(a, b, transpose_y=True, alpha=0.5), [MATRIX, MATRIX]),
    "fc": (lambda x: layers.tanh(layers.fc(x, 3, param_attr=CONSTANT)), [MATRIX]),
    "conv2d": (
        lambda x: layers.tanh(layers.conv2d(x, 4, 3, stride=2, param_attr=CONSTANT)),
        [PICTURE],
    ),
    "depthwise": (
        lambda x: layers.tanh(
            layers.conv2d(x, 3, 3, groups=3, use_cudnn=False, param_attr=CONSTANT)
        ),
        [PICTURE],
    ),
    "small_factor": (
        lambda a, b: layers.elementwise_mul(layers.square(a), b, axis=1),
        [PICTURE, (3,)],
    ),
    "small_term": (
        lambda a, b: layers.square(layers.elementwise_sub(a, b, axis=0)),
        [PICTURE, (2,)],
    ),
    "small_divisor": (
        lambda a, b: layers.elementwise_div(layers.square(a), b, axis=1),
        [PICTURE, (3,)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_second_gradient_is_that_of_finite_differences(
    name: str, exe: Any, fresh_programs: object
) -> None:
    function, shapes = CASES[name]
    inputs = [fluid.data(f"x{i}", list(shape), "float32") for i, shape in enumerate(shapes)]
    for input_ in inputs:
        input_.stop_gradient = False
    result = function(*inputs)
    weighed = layers.reduce_sum(result * layers.assign(waves(*result.shape)))
    first = fluid.gradients([weighed], inputs)
    total = layers.reduce_sum(layers.square(first[0]))
    for each in first[1:]:
        total = total + layers.reduce_sum(layers.square(each) * 0.5)
    second = fluid.gradients([total], inputs)
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    feed = {x.name: np.abs(waves(*shape)) + 0.3 for x, shape in zip(inputs, shapes, strict=True)}
    actual = exe.run(feed=feed, fetch_list=second)
    for variable, gradient in zip(inputs, actual, strict=True):
        expected = differences(exe, feed, variable.name, total)
        scale = max(1e-2, float(np.abs(expected).max()))
        np.testing.assert_allclose(gradient.ravel()[: len(expected)] / scale, expected / scale,
                                   atol=2e-3)  # fmt: skip


def differences(exe: Any, feed: dict[str, np.ndarray], name: str, total: Any) -> np.ndarray:
    """How much the total changes with each of the first elements of a feed."""
    results = []
    for place in range(min(4, feed[name].size)):
        ends = []
        for step in (STEP, -STEP):
            moved = feed[name].copy()
            moved.reshape(-1)[place] += step
            ends.append(exe.run(feed={**feed, name: moved}, fetch_list=[total])[0].item())
        results.append((ends[0] - ends[1]) / (2 * STEP))
    return np.array(results)


def test_a_penalty_on_gradients_trains_as_in_the_reference(
    exe: Any, fresh_programs: object
) -> None:
    """A critic whose slopes are drawn towards 1; the losses are those of Paddle 1.8.5."""
    x = fluid.data("x", [None, 2, 6, 6], "float32")
    x.stop_gradient = False
    hidden = layers.conv2d(x, 4, 3, padding=1, param_attr="w1", bias_attr="b1")
    hidden = layers.leaky_relu(hidden, 0.2)
    hidden = layers.conv2d(
        hidden, 4, 3, stride=2, padding=1, param_attr="w2", bias_attr="b2", act="relu"
    )
    said = layers.fc(hidden, 1, param_attr="w3", bias_attr="b3")
    (slope,) = fluid.gradients([said], [x])
    squares = layers.reduce_sum(layers.square(layers.reshape(slope, [-1, 72])), dim=1)
    penalty = layers.reduce_mean(layers.square(layers.sqrt(squares) - 1.0))
    loss = layers.reduce_mean(said) + 10.0 * penalty
    fluid.optimizer.SGD(0.001).minimize(loss)
    exe.run(fluid.default_startup_program())
    for name, shape in {"w1": (4, 2, 3, 3), "w2": (4, 4, 3, 3), "w3": (36, 1)}.items():
        tensor = fluid.global_scope().find_var(name).get_tensor()
        tensor.set(waves(*shape) * np.float32(0.2), fluid.CPUPlace())
    feed = {"x": waves(3, 2, 6, 6)}
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(4)]
    np.testing.assert_allclose(losses, LOSSES, rtol=1e-5)


def test_an_unknown_second_gradient_is_reported(fresh_programs: object) -> None:
    """The reference leaves such a path out without a word."""
    x = fluid.data("x", [4, 6], "float32")
    x.stop_gradient = False
    (slope,) = fluid.gradients([layers.square(layers.softmax(x))], [x])
    count = len(fluid.default_main_program().global_block().ops)
    with pytest.raises(CompileError, match="softmax_grad does not support double grad") as caught:
        fluid.gradients([layers.mean(layers.square(slope))], [x])
    assert "test_double_grad.py" in str(caught.value)
    assert len(fluid.default_main_program().global_block().ops) == count + 2
    assert fluid.gradients([layers.mean(slope)], [layers.assign(slope)]) == [None]


def test_an_unknown_third_gradient_is_reported(fresh_programs: object) -> None:
    """The reference computes 4 here, without a word; it is 24 x = 12."""
    x = fluid.data("x", [1], "float32")
    x.stop_gradient = False
    (slope,) = fluid.gradients([layers.square(layers.square(x))], [x])
    (bend,) = fluid.gradients([slope], [x])
    with pytest.raises(CompileError, match=r"square_grad_grad has no gradient, .* third-order"):
        fluid.gradients([bend], [x])
