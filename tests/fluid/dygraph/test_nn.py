"""Layers of eager mode: shapes of results, and gradients of every parameter."""

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph

IMAGE, VOLUME = (2, 4, 5, 5), (1, 4, 3, 3, 3)
EDGES = np.array([[[1, 2], [1, 3], [2, 4]]], "int32")
LABELS = np.array([[1], [2]])
CASES: dict[str, tuple[Any, list[Any], tuple[int, ...]]] = {
    "BilinearTensorProduct": (lambda: dygraph.BilinearTensorProduct(3, 4, 5), [(2, 3), (2, 4)], (2, 5)),
    "Conv2DTranspose": (lambda: dygraph.Conv2DTranspose(4, 3, 2, stride=2), [IMAGE], (2, 3, 10, 10)),
    "Conv3D": (lambda: dygraph.Conv3D(4, 2, 3, padding=1), [VOLUME], (1, 2, 3, 3, 3)),
    "Conv3DTranspose": (lambda: dygraph.Conv3DTranspose(4, 2, 2, bias_attr=fluid.ParamAttr()), [VOLUME], (1, 2, 4, 4, 4)),
    "GRUUnit": (lambda: dygraph.GRUUnit(9), [(2, 9), (2, 3)], (2, 3)),
    "GroupNorm": (lambda: dygraph.GroupNorm(4, 2), [IMAGE], IMAGE),
    "InstanceNorm": (lambda: dygraph.InstanceNorm(4), [IMAGE], IMAGE),
    "NCE": (lambda: dygraph.NCE(10, 3, num_neg_samples=4), [(2, 3), LABELS], (2, 1)),
    "SpectralNorm": (lambda: dygraph.SpectralNorm([3, 4]), [(3, 4)], (3, 4)),
    "TreeConv": (lambda: dygraph.TreeConv(3, 4, 2), [(1, 4, 3), EDGES], (1, 4, 4, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_layer_has_its_shape_and_gradients(name: str) -> None:
    make, feeds, shape = CASES[name]
    draw = np.random.default_rng(0)
    arrays = [draw.random(f, np.float32) if isinstance(f, tuple) else f for f in feeds]
    with dygraph.guard():
        layer = make()
        result = layer(*map(dygraph.to_variable, arrays))
        result = result[0] if isinstance(result, (list, tuple)) else result
        assert tuple(result.shape) == shape
        fluid.layers.mean(fluid.layers.square(result)).backward()
        for parameter in layer.parameters():
            if not parameter.stop_gradient:
                assert np.isfinite(parameter.gradient()).all()


@pytest.mark.parametrize(("name", "axes"), [("GroupNorm", (1, 2)), ("InstanceNorm", (2,))])
def test_norms_have_mean_0_and_variance_1(name: str, axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).random(IMAGE, np.float32)
    with dygraph.guard():
        y = CASES[name][0]()(dygraph.to_variable(x)).numpy()
    groups = y.reshape(2, 2, 2, 25) if name == "GroupNorm" else y.reshape(2, 4, 25)
    kept = tuple(axis + 1 for axis in axes) if name == "GroupNorm" else axes
    np.testing.assert_allclose(groups.mean(kept), 0, atol=1e-5)
    np.testing.assert_allclose(groups.var(kept), 1, atol=1e-2)


def test_a_function_for_static_programs_runs_in_eager_mode_as_it_is() -> None:
    twice = dygraph.dygraph_to_static_func(lambda x: x + x)
    with dygraph.guard():
        np.testing.assert_array_equal(twice(dygraph.to_variable(np.ones(2))).numpy(), [2, 2])


def test_eager_mode_is_enabled_in_a_guard_only() -> None:
    assert not dygraph.enabled()
    with dygraph.guard():
        assert dygraph.enabled()
        assert not dygraph.BackwardStrategy().sort_sum_gradient


def test_hooks_are_called_until_removed():
    with fluid.dygraph.guard():
        layer = fluid.dygraph.Linear(2, 2)
        x = fluid.dygraph.to_variable(np.ones([1, 2], "float32"))
        plain = layer(x).numpy()
        doubled = [layer.register_forward_post_hook(lambda layer, x, y: y * 2) for _ in range(2)]
        assert [helper._hook_id in layer._forward_post_hooks for helper in doubled] == [True] * 2
        assert np.allclose(layer(x).numpy(), plain * 4)
        doubled[0].remove()
        doubled[0].remove()
        assert np.allclose(layer(x).numpy(), plain * 2)
