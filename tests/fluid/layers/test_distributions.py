"""Distributions: the ops and numbers of release 1.8.5, samples, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.framework import default_main_program
from fluid.layers import Categorical, MultivariateNormalDiag, Normal, Uniform

pytestmark = pytest.mark.usefixtures("fresh_programs")

LOC, SCALE = np.array([0.5, 0.25], np.float32), np.array([2, 3], np.float32)
POINTS = np.array([0.75, 1.5], np.float32)
LOGITS = np.array([[-0.6, -0.7, 0.1], [1, 2, 3]], np.float32)
CENTRES = {"a": np.array([0, 100, 200], np.float32), "b": np.array([1, 102, 204], np.float32)}


def ops() -> list[str]:
    return [op.type for op in default_main_program().global_block().ops]


def value(exe: fluid.Executor, var: Any, feed: Any = None) -> np.ndarray:
    return exe.run(feed=feed, fetch_list=[var])[0]


def constant(array: Any) -> Any:
    return layers.assign(np.array(array, np.float32))


def unit(value: Any) -> Any:
    return np.full_like(value, 1.0)


def divergence(chances: Any, others: Any) -> Any:
    return (chances * np.log(chances / others)).sum(-1, keepdims=True)


def softmax(logits: Any) -> Any:
    powers = np.exp(logits)
    return powers / powers.sum(-1, keepdims=True)


# ---- what is recorded ---------------------------------------------------------------------------

TWO = ["assign_value"] * 2
DETERMINANT = "fill_constant fill_constant diag elementwise_add elementwise_sub reduce_prod".split()
INVERSE = "fill_constant fill_constant diag scale elementwise_sub elementwise_pow".split()

CALLS: list[tuple[Callable[[], Any], list[str]]] = [
    (
        lambda: Normal(0.5, [2.0, 3.0]).entropy(),
        "elementwise_add elementwise_add fill_constant_batch_size_like elementwise_add log scale",
    ),
    (
        lambda: Normal(LOC, SCALE).log_prob(constant(POINTS)),
        "assign_value elementwise_mul log elementwise_sub elementwise_sub elementwise_mul scale "
        "scale elementwise_div elementwise_sub scale",
    ),
    (
        lambda: Normal(LOC, SCALE).kl_divergence(Normal(LOC, SCALE)),
        "assign_value assign_value elementwise_div elementwise_mul elementwise_sub elementwise_div "
        "elementwise_mul elementwise_add scale log elementwise_sub scale",
    ),
    (
        lambda: Normal(0.0, 1.0).sample([3]),
        "elementwise_add gaussian_random fill_constant elementwise_add elementwise_mul "
        "elementwise_add reshape2",
    ),
    (lambda: Uniform(0.0, 1.0).entropy(), "elementwise_sub log"),
    (
        lambda: Uniform(LOC, SCALE).log_prob(constant(POINTS)),
        "assign_value less_than less_than cast cast elementwise_mul log elementwise_sub log "
        "elementwise_sub",
    ),
    (
        lambda: Uniform([0.0], [1.0]).sample([3]),
        "elementwise_add uniform_random fill_constant elementwise_sub elementwise_add "
        "elementwise_mul elementwise_add",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "recorded"), CALLS)
def test_ops_are_those_of_the_reference(call: Callable[[], Any], recorded: str) -> None:
    call()
    assert ops() == TWO + recorded.split()


def test_ops_of_categories_are_those_of_the_reference() -> None:
    Categorical(LOGITS).entropy()
    recorded = "reduce_max elementwise_sub exp reduce_sum elementwise_div log elementwise_sub "
    assert ops() == ["assign_value", *recorded.split(), "elementwise_mul", "reduce_sum", "scale"]


def test_ops_of_a_diagonal_are_those_of_the_reference() -> None:
    one = MultivariateNormalDiag(LOC, np.diag(SCALE))
    one.entropy()
    assert ops() == [*TWO, *DETERMINANT, "log", "scale", "scale"]
    fresh = len(ops())
    one.kl_divergence(one)
    inner = ["elementwise_sub", *INVERSE, "matmul", "elementwise_sub", "matmul"]
    logs = [*DETERMINANT, "log", *DETERMINANT, "log", "elementwise_sub"]
    end = ["elementwise_add", "scale", "elementwise_add", "scale"]
    assert ops()[fresh:] == [*INVERSE, "elementwise_mul", "reduce_sum", *inner, *logs, *end]


# ---- numbers ------------------------------------------------------------------------------------


def test_numbers_of_a_normal(exe: fluid.Executor) -> None:
    one, other = Normal(LOC, SCALE), Normal([0.25], [0.7])
    half = 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(value(exe, one.entropy()), 0.5 + half + np.log(SCALE), rtol=1e-6)
    density = -((POINTS - LOC) ** 2) / (2 * SCALE**2) - np.log(SCALE) - half
    result = value(exe, one.log_prob(constant(POINTS)))
    np.testing.assert_allclose(result, density, rtol=1e-6)
    ratio, shift = (SCALE / 0.7) ** 2, ((LOC - 0.25) / 0.7) ** 2
    apart = 0.5 * (ratio + shift - 1 - np.log(ratio))
    np.testing.assert_allclose(value(exe, one.kl_divergence(other)), apart, rtol=1e-6)


def test_numbers_of_a_uniform(exe: fluid.Executor) -> None:
    one = Uniform([0.0, 0.0], [1.0, 4.0])
    np.testing.assert_allclose(value(exe, one.entropy()), np.log([1, 4]), rtol=1e-6)
    with np.errstate(divide="ignore"):
        result = value(exe, one.log_prob(constant([1.5, 0.5])))
    np.testing.assert_allclose(result, [-np.inf, -np.log(4)], rtol=1e-6)


def test_numbers_of_categories(exe: fluid.Executor) -> None:
    one, other = Categorical(LOGITS), Categorical([[0.25, 0.5, 0.75]])
    chances, others = softmax(LOGITS), softmax(np.array([0.25, 0.5, 0.75]))
    result = value(exe, one.kl_divergence(other))
    np.testing.assert_allclose(result, divergence(chances, others), rtol=1e-5)
    entropy = -divergence(chances, unit(chances))
    np.testing.assert_allclose(value(exe, one.entropy()), entropy, rtol=1e-5)


def test_numbers_of_a_diagonal(exe: fluid.Executor) -> None:
    one = MultivariateNormalDiag(constant([0.3, 0.5]), constant([[0.4, 0], [0, 0.5]]))
    other = MultivariateNormalDiag(constant([0.2, 0.4]), constant([[0.3, 0], [0, 0.4]]))
    assert value(exe, one.entropy()) == pytest.approx([2.033158], rel=1e-6)
    assert value(exe, one.kl_divergence(other)) == pytest.approx([0.06542051], rel=1e-5)


# ---- samples ------------------------------------------------------------------------------------

SHAPES: list[tuple[Any, Any, list[int], tuple[int, ...]]] = [
    (0.5, 2.0, [2, 3], (2, 3)),
    (0.5, [2.0], [3], (3, 1)),
    (LOC, SCALE, [], (2,)),
    (LOC.reshape(2, 1), np.array([2, 3, 4], np.float32), [5], (5, 2, 3)),
]


@pytest.mark.parametrize("distribution", [Normal, Uniform])
@pytest.mark.parametrize(("first", "second", "shape", "want"), SHAPES)
def test_shape_of_samples(
    exe: fluid.Executor, distribution: Any, first: Any, second: Any, shape: Any, want: Any
) -> None:
    drawn = distribution(first, second).sample(shape, seed=3)
    assert drawn.shape == value(exe, drawn).shape == want


def test_samples_of_constants(exe: fluid.Executor) -> None:
    even = value(exe, Uniform([3.0, -8.0], [4.0, -4.0]).sample([4000], seed=1))
    assert (even.min(0) >= [3, -8]).all()
    assert (even.max(0) < [4, -4]).all()
    np.testing.assert_allclose(even.mean(0), [3.5, -6], atol=0.1)
    drawn = value(exe, Normal(LOC, SCALE).sample([4000], seed=1))
    np.testing.assert_allclose(drawn.mean(0), LOC, atol=0.2)
    np.testing.assert_allclose(drawn.std(0), SCALE, rtol=0.05)


def test_samples_of_a_batch(exe: fluid.Executor) -> None:
    low, high = fluid.data("a", [None]), fluid.data("b", [None])
    even, normal = Uniform(low, high).sample([50], seed=1), Normal(low, high).sample([2000], seed=1)
    assert (even.shape, normal.shape) == ((50, -1), (2000, -1))
    result = value(exe, even, CENTRES)
    assert ((result >= CENTRES["a"]) & (result < CENTRES["b"])).all()
    drawn = value(exe, normal, CENTRES)
    np.testing.assert_allclose((drawn.mean(0) - CENTRES["a"]) / CENTRES["b"], 0, atol=0.1)


@pytest.mark.parametrize("shape", [[], [3], [2, 3]])
@pytest.mark.parametrize("distribution", [Normal, Uniform])
def test_samples_of_variables(exe: fluid.Executor, distribution: Any, shape: list[int]) -> None:
    batch = {"first": np.zeros((2, 4), np.float32), "second": np.ones((2, 4), np.float32)}
    inputs = [fluid.data(name, [None, 4]) for name in batch]
    drawn = distribution(*inputs).sample(shape, seed=2)
    assert drawn.shape == (*shape, -1, 4)
    assert value(exe, drawn, batch).shape == (*shape, 2, 4)
    known = distribution(*map(constant, batch.values())).sample(shape, seed=2)
    assert value(exe, known, batch).shape == (*shape, 2, 4)


def test_the_seed_decides(exe: fluid.Executor) -> None:
    same = [Normal(0.0, 1.0).sample([4], seed=seed) for seed in (5, 5, 6)]
    first, second, other = exe.run(fetch_list=same)
    assert (first == second).all()
    assert (first != other).any()


def test_gradient_reaches_the_parameters() -> None:
    width = layers.create_parameter([3], "float32", "width")
    lost = layers.mean(Normal(constant([0.0] * 3), width).entropy())
    pairs = fluid.backward.append_backward(lost)
    assert [param.name for param, _ in pairs] == ["width"]


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Normal(1, 2), TypeError, "type of 'loc' in Normal"),
        (lambda: Uniform(0.0, "1"), TypeError, "type of 'high' in Uniform"),
        (lambda: Categorical(0.5), TypeError, "type of 'logits' in Categorical"),
        (lambda: Normal(0.5, constant([1.0])), ValueError, "must all be variables, or none"),
        (lambda: Normal(0.0, 1.0).sample((3,)), TypeError, "type of 'shape' in sample"),
        (lambda: Uniform(0.0, 1.0).sample([3], 0.5), TypeError, "type of 'seed' in sample"),
        (lambda: Uniform(0.0, 1.0).log_prob(0.5), TypeError, "type of 'value' in log_prob"),
        (
            lambda: Normal(0.0, 1.0).kl_divergence(Uniform(0.0, 1.0)),
            TypeError,
            "type of 'other' in kl_divergence must be Normal",
        ),
        (lambda: Categorical(LOGITS).sample(), NotImplementedError, "Categorical has no sample"),
        (
            lambda: Uniform(0.0, 1.0).kl_divergence(Uniform(0.0, 1.0)),
            NotImplementedError,
            "Uniform has no kl_divergence, as in Paddle 1.8",
        ),
        (
            lambda: MultivariateNormalDiag(LOC, np.diag(SCALE)).log_prob(constant(LOC)),
            NotImplementedError,
            "MultivariateNormalDiag has no log_prob",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_wider_arrays_warn() -> None:
    with pytest.warns(UserWarning, match="scale is float64, and is cast to float32") as heard:
        Normal(LOC, SCALE.astype(np.float64))
    assert heard[0].filename == __file__
