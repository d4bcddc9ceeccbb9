"""`core.Graph` and `IrGraph`: what release 1.8.5 makes of a program, and rewrites of it."""

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from fluid import core
from fluid.framework import IrGraph

NODES = [
    (0, "elementwise_add", [1, 1], [2, 8]),
    (1, "x", [], [0, 0]),
    (2, "elementwise_add_0.tmp_0", [0], [3]),
    (3, "increment", [2, 8], [4, 7]),
    (4, "elementwise_add_0.tmp_0", [3], [5]),
    (5, "increment", [4, 7], [6]),
    (6, "elementwise_add_0.tmp_0", [5], []),
    (7, "__control_var@7", [3], [5]),
    (8, "__control_var@8", [0], [3]),
]
"""Nodes of release 1.8.5: number, name, inputs and outputs."""


@pytest.fixture
def graph(fresh_programs):
    x = fluid.data("x", [1])
    y = fluid.layers.elementwise_add(x, x)
    fluid.layers.increment(fluid.layers.increment(y))
    return IrGraph(core.Graph(fluid.default_main_program().desc))


def numbers(nodes):
    return [node.id() for node in nodes]


def op_named(graph, name):
    return next(node for node in graph.topology_sort() if node.name() == name)


def test_a_graph_has_the_nodes_and_edges_of_the_reference(graph):
    nodes = sorted(graph.all_nodes(), key=lambda node: node.id())
    shown = [(n.id(), n.name(), numbers(n.inputs), numbers(n.outputs)) for n in nodes]
    assert shown == NODES
    assert numbers(node for node in nodes if node.is_ctrl_var()) == [7, 8]
    assert numbers(graph.topology_sort()) == [0, 3, 5]
    assert (graph.graph_num(), graph.has_circle(), graph.is_test()) == (1, False, False)
    earlier = graph.build_adjacency_list()
    assert {op.id(): numbers(earlier[op]) for op in earlier} == {0: [], 3: [0], 5: [3]}


def test_a_rewritten_graph_runs(graph, exe):
    add = op_named(graph, "elementwise_add")
    (x,) = set(add.inputs)
    doubled = graph.create_var_node("doubled", x.type(), x.shape(), x.dtype())
    scale = graph.create_op_node("scale", {"scale": 2.0}, {"X": x}, {"Out": doubled})
    graph.link_to(x, scale)
    graph.link_to(scale, doubled)
    graph.update_input_link(x, doubled, add)
    copied = graph.clone()
    graph.safe_remove_nodes(op_named(graph, "increment"))
    feed = {"x": np.array([1.0], np.float32)}
    for rewritten, expected in ((copied, 6.0), (graph, 5.0)):
        program = fluid.CompiledProgram(rewritten.graph)
        (value,) = exe.run(program, feed=feed, fetch_list=["elementwise_add_0.tmp_0"])
        assert float(value) == expected
    assert [op.type for op in copied.to_program().global_block().ops][:2] == [
        "scale",
        "elementwise_add",
    ]


def test_parameters_and_blocks_stay_in_the_program_of_a_graph(fresh_programs):
    fluid.layers.fc(fluid.data("x", [-1, 2]), 1, param_attr="w", bias_attr=False)
    main = fluid.default_main_program()
    graph = IrGraph(core.Graph(main.desc), for_test=True)
    assert [node.name() for node in graph.all_persistable_nodes()] == ["w"]
    program = graph.to_program()
    assert [param.name for param in program.all_parameters()] == ["w"]
    copied = core.ProgramDesc()
    convert = core.get_pass("graph_to_program_pass")
    convert.set_not_owned("program", copied)
    convert.apply(graph.graph)
    assert copied.block(0).op(0).type() == "mul" and graph.is_test()


def test_a_cycle_is_an_error(graph):
    first, last = op_named(graph, "elementwise_add"), graph.topology_sort()[-1]
    graph.link_to(last.outputs[0], first)
    assert graph.has_circle()
    with pytest.raises(CompileError, match="has a cycle"):
        graph.to_program()


def test_wrong_arguments_raise(graph):
    with pytest.raises(TypeError, match=r"takes Program\.desc"):
        core.Graph(fluid.Program())
    with pytest.raises(AssertionError, match=r"core\.Graph"):
        IrGraph(fluid.Program())
    add = op_named(graph, "elementwise_add")
    graph.safe_remove_nodes({add})
    with pytest.raises(AssertionError, match="is not in the graph"):
        graph.link_to(add, add)
    with pytest.raises(CompileError, match="is an op"):
        add.var()
    with pytest.raises(NotImplementedError, match="no pass 'fc_lstm_fuse_pass'; did you mean"):
        core.get_pass("fc_lstm_fuse_pass")


def test_a_graph_is_drawn(graph, tmp_path, capsys):
    graph.draw(str(tmp_path / "new"), "network", marked_nodes=op_named(graph, "increment"))
    text = (tmp_path / "new" / "network.dot").read_text()
    assert 'node_3 [label="increment", shape=box, color="yellow"]' in text
    assert "node_0 -> node_2;" in text and "__control_var" not in text
    assert capsys.readouterr().out == "Total ops num = 3.\n"
