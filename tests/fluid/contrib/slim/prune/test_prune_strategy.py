"""Strategies that prune: what they change in graphs, and what they leave."""

import fluid
from fluid import layers
from fluid.contrib.slim.core import Context
from fluid.contrib.slim.graph import GraphWrapper
from fluid.contrib.slim.prune import StructurePruner, UniformPruneStrategy


def test_several_filters_a_group_stay_where_nothing_is_pruned(fresh_programs: object) -> None:
    x = fluid.data("x", [None, 2, 6, 6])
    apart = layers.conv2d(x, 4, 3, groups=2, param_attr="apart_weights", bias_attr=False)
    conv = layers.conv2d(apart, 4, 3, param_attr="conv_weights", bias_attr=False)
    y = layers.fc(conv, 3)
    scope, place = fluid.Scope(), fluid.CPUPlace()
    fluid.Executor(place).run(fluid.default_startup_program(), scope=scope)
    graph = GraphWrapper(fluid.default_main_program(), {"image": "x"}, {"out": y.name})
    context = Context(place, scope, graph, eval_graph=graph)
    context.optimize_graph = graph
    pruner = StructurePruner({"*": 0}, {"*": "l1_norm"})
    strategy = UniformPruneStrategy(pruner, target_ratio=0.3, pruned_params="conv_weights")
    strategy.on_epoch_begin(context)
    groups = [op.attr("groups") for op in graph.ops() if op.type().endswith("conv2d")]
    assert groups == [2, 1] and graph.var("conv_weights").shape()[0] < 4
