"""Graphs of ops and variables; numbers are those of release 1.8.5."""

import numpy as np
import pytest

import fluid
from fluid.contrib.slim.graph import GraphWrapper, SlimGraphExecutor
from tests.fluid.contrib.slim.networks import network

X = np.random.RandomState(0).rand(2, 1, 6, 6).astype("float32") - 0.5


def test_ops_and_variables() -> None:
    graph, _, (first, *_) = network("s_")
    names = [param.name() for param in graph.all_parameters()]
    assert sorted(names) == ["s_b0", "s_m", "s_o", "s_s", "s_v", "s_w0", "s_w1", "s_w2"]
    assert (graph.numel_params(), graph.flops(), graph.flops(only_conv=True)) == (200, 3696, 3240)
    pool = next(op for op in graph.ops() if op.type() == "pool2d")
    assert [op.type() for op in graph.pre_ops(pool)] == ["batch_norm"]
    assert [op.type() for op in graph.next_ops(pool)] == ["mul"]
    var = graph.var(first)
    assert ([op.type() for op in var.inputs()], [op.type() for op in var.outputs()]) == (
        ["conv2d"],
        ["relu"],
    )
    assert graph.is_parameter(graph.var("s_w0"))
    assert not graph.is_parameter(graph.var("x"))
    assert graph.is_persistable(graph.var("s_m"))
    with pytest.raises(AssertionError, match="pool2d reads no parameter"):
        graph.get_param_by_op(pool)


def test_run_and_save(tmp_path) -> None:
    graph, startup, (*_, y) = network("s_")
    executor, scope = SlimGraphExecutor(fluid.CPUPlace()), fluid.Scope()
    executor.exe.run(startup, scope=scope)
    loss, out = executor.run(graph, scope, [(image,) for image in X])
    assert np.allclose(loss, 0.739, atol=1e-3)
    assert np.allclose(executor.run(graph, scope, [{"x": X}])[1], out)
    with fluid.scope_guard(scope):
        graph.save_persistables(str(tmp_path / "p"), executor)
        graph.load_persistables(str(tmp_path / "p"), executor)
        graph.clone(for_test=True).save_infer_model(str(tmp_path / "m"), executor, [["x"], [y]])
    assert len(list((tmp_path / "p").iterdir())) == 8
    assert {path.name for path in (tmp_path / "m").iterdir()} == {"__model__.infer", "__params__"}


def test_training_graph() -> None:
    graph, startup, _ = network("s_")
    executor, scope = SlimGraphExecutor(fluid.CPUPlace()), fluid.Scope()
    executor.exe.run(startup, scope=scope)
    trained = graph.get_optimize_graph(fluid.optimizer.SGD(0.1), fluid.CPUPlace(), scope, ["s_w0"])
    assert trained is not None
    assert any(op.is_bwd_op() for op in trained.ops())
    assert not any(op.is_bwd_op() for op in graph.ops())
    before = {name: np.array(scope.find_var(name).get_tensor()) for name in ("s_w0", "s_w2")}
    trained.compile(for_parallel=False)
    executor.run(trained, scope, [(image,) for image in X])
    after = {name: np.array(scope.find_var(name).get_tensor()) for name in before}
    assert np.array_equal(after["s_w0"], before["s_w0"])
    assert not np.array_equal(after["s_w2"], before["s_w2"])
    graph.out_nodes.clear()
    assert graph.get_optimize_graph(fluid.optimizer.SGD(0.1), fluid.CPUPlace(), scope) is None


def test_shapes_of_pruned_parameters() -> None:
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2, 6, 6])
        conv = fluid.layers.conv2d(x, 4, 3, bias_attr=False, param_attr="w")
        depthwise = fluid.layers.conv2d(
            conv, 4, 3, groups=4, bias_attr=False, param_attr="d", use_cudnn=False
        )
    graph = GraphWrapper(main, {"x": "x"}, {"out": depthwise.name})
    executor = SlimGraphExecutor(fluid.CPUPlace())
    executor.exe.run(startup, scope=scope)
    for name in ("w", "d"):
        tensor = scope.find_var(name).get_tensor()
        tensor.set(np.array(tensor)[:3], fluid.CPUPlace())
    graph.update_param_shape(scope)
    graph.update_groups_of_conv()
    graph.infer_shape()
    assert [graph.var(name).shape()[1] for name in (conv.name, depthwise.name)] == [3, 3]
    samples = [(image,) for image in np.ones([2, 2, 6, 6], "float32")]
    assert executor.run(graph, scope, samples)[0].shape == (2, 3, 2, 2)
