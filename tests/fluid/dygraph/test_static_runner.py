"""Saved programs as layers of eager mode."""

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.dygraph import StaticModelRunner

X = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)


def saved(build, folder, feeds=("x",)):
    """Save a network of x; returns its output for X."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        out = build(fluid.data("x", [None, 4], "float32"))
        exe = fluid.Executor()
        with fluid.scope_guard(fluid.Scope()):
            exe.run(fluid.default_startup_program())
            fluid.io.save_inference_model(str(folder), list(feeds), [out], exe)
            return exe.run(fluid.default_main_program().clone(for_test=True), {"x": X}, [out])[0]


def dense(x):
    return layers.fc(x, 2, act="tanh")


def normalized(x):
    return layers.batch_norm(layers.dropout(layers.fc(x, 2), 0.5))


def looped(x):
    """Twice a layer, then a branch."""

    def step(count, value):
        return [count + 1, layers.fc(value, 4, param_attr="w", bias_attr=False)]

    start = layers.zeros([1], "int64")
    _, h = layers.while_loop(lambda count, _: count < 2, step, [start, layers.fc(x, 4)])
    return layers.cond(layers.reduce_sum(h) > 0, lambda: h * 2, lambda: h * 3)


@pytest.mark.parametrize("build", [dense, normalized, looped])
def test_layer_computes_what_program_does(build, tmp_path) -> None:
    expected = saved(build, tmp_path)
    with fluid.dygraph.guard():
        model = StaticModelRunner(tmp_path)
        model.eval()
        assert np.allclose(model(X).numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("build", [dense, looped])
def test_layer_is_trained(build, tmp_path) -> None:
    saved(build, tmp_path)
    with fluid.dygraph.guard():
        model = StaticModelRunner(tmp_path)
        rate = fluid.optimizer.SGD(0.01, parameter_list=model.parameters())
        losses = []
        for _ in range(4):
            out = model(X)
            loss = layers.mean(layers.square(out - 1.0))
            loss.backward()
            gradients = [param.gradient() for param in model.parameters()]
            assert all(np.abs(gradient).max() > 0 for gradient in gradients)
            rate.minimize(loss)
            model.clear_gradients()
            losses.append(float(loss.numpy()[0]))
        assert losses == sorted(losses, reverse=True)


def test_modes_and_names(tmp_path) -> None:
    saved(normalized, tmp_path)
    with fluid.dygraph.guard():
        model = StaticModelRunner(tmp_path)
        by_name = model.state_dict()
        assert all(name == param.name for name, param in by_name.items())
        assert "fc_0.w_0@LOADED" in by_name
        means = [param for name, param in by_name.items() if ".mean" in name or "w_1" in name]
        assert means
        assert all(param.stop_gradient for param in means)
        before = means[0].numpy()
        first = model(X)
        assert first.name == "static_model_runner/scale_0.tmp_0"
        assert np.allclose(first.numpy().mean(0), 0, atol=1e-5)
        assert not np.allclose(means[0].numpy(), before)


def test_wrong_use_raises(tmp_path) -> None:
    saved(dense, tmp_path / "model")
    with pytest.raises(AssertionError, match=r"within fluid\.dygraph\.guard"):
        StaticModelRunner(tmp_path / "model")
    with fluid.dygraph.guard():
        with pytest.raises(ValueError, match="no directory named"):
            StaticModelRunner(tmp_path / "other")
        model = StaticModelRunner(tmp_path / "model")
        with pytest.raises(TypeError, match="must be numpy array or Variable"):
            model([1.0])
        with pytest.raises(ValueError, match="has the inputs x, but received 2"):
            model(X, X)
