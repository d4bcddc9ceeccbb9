"""Static programs of eager layers and functions."""

from pathlib import Path

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers
from fluid.dygraph import ProgramTranslator, TracedLayer, declarative, to_variable


class Network(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = dygraph.Conv2D(1, 2, 3)
        self.norm = dygraph.BatchNorm(2, act="relu")
        self.drop = dygraph.Dropout(0.5)
        self.offset = to_variable(np.array([0.5], "float32"))

    def forward(self, x):
        return layers.reshape(self.drop(self.norm(self.conv(x))), [-1, 8]) + self.offset


def images(count: int):
    return np.random.RandomState(0).rand(count, 1, 4, 4).astype("float32")


def test_traced_layer_is_layer_for_any_batch(tmp_path: Path) -> None:
    with dygraph.guard():
        net = Network()
        net.eval()
        outputs, traced = TracedLayer.trace(net, [to_variable(images(2))])
        np.testing.assert_array_equal(traced([images(2)])[0], outputs.numpy())
        expected = net(to_variable(images(3))).numpy()
        np.testing.assert_array_equal(traced([to_variable(images(3))])[0], expected)
        net.conv.weight.set_value(net.conv.weight.numpy() * 2)
        assert not np.array_equal(traced([images(3)])[0], expected)
        net.conv.weight.set_value(net.conv.weight.numpy() / 2)
        traced.save_inference_model(str(tmp_path), feed=[0], fetch=[0])
    executor = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), executor)
        (loaded,) = executor.run(program, {feeds[0]: images(3)}, fetches)
    np.testing.assert_allclose(loaded, expected, rtol=1e-5)


def test_branch_on_value_is_refused() -> None:
    class Branch(dygraph.Layer):
        def forward(self, x):
            return x * 2 if layers.reduce_mean(x) > 0 else x

    with dygraph.guard(), pytest.raises(RuntimeError, match=r"test_jit.py:\d+: a branch or loop"):
        TracedLayer.trace(Branch(), [to_variable(images(1))])


def test_functions_that_convert_their_arguments_are_recorded() -> None:
    def doubled(x):
        return to_variable(x) * 2.0

    program, _, feeds, outputs = ProgramTranslator().get_program(
        doubled, np.ones((2, 3), "float32")
    )
    values = np.arange(6, dtype="float32").reshape(2, 3)
    (result,) = fluid.Executor().run(program, {feeds[0].name: values}, outputs)
    assert result.tolist() == (values * 2.0).tolist()


def test_declarative_function_is_saved(tmp_path: Path) -> None:
    @declarative
    def doubled(x, times):
        return x * times + 1

    ProgramTranslator.reset()
    with pytest.raises(RuntimeError, match="no function with `declarative` was called"):
        ProgramTranslator().save_inference_model(str(tmp_path))
    with dygraph.guard():
        assert doubled(to_variable(np.ones([2], "float32")), 3).numpy().tolist() == [4, 4]
        ProgramTranslator().save_inference_model(str(tmp_path))
    assert (tmp_path / "__model__").is_file()
    assert "def doubled(x, times)" in ProgramTranslator().get_code(doubled)


def test_program_of_function() -> None:
    main, startup, inputs, outputs = ProgramTranslator().get_program(
        lambda x: layers.fc(x, 3), np.ones([2, 4], "float32")
    )
    executor = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        feed = {inputs[0].name: np.ones([5, 4], "float32")}
        assert executor.run(main, feed, outputs)[0].shape == (5, 3)
