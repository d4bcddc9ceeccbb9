"""Small helpers that scripts import: drawings, layers made of op types, paths of modules."""

import subprocess
import sys

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.compat.old_names import graphviz, net_drawer
from fluid.layers.layer_functions import (
    autodoc,
    deprecated,
    generate_activation_fn,
    generate_layer_fn,
    templatedoc,
)

pytestmark = pytest.mark.usefixtures("fresh_programs")


def test_net_drawer_draws_a_network(tmp_path):
    layers.fc(fluid.data("x", [None, 3]), 4)
    path = tmp_path / "net.gv"
    programs = fluid.default_startup_program(), fluid.default_main_program()
    graph = net_drawer.draw_graph(*programs, filename=str(path))
    text = path.read_text()
    assert text.startswith("digraph G {")
    ops = [node.label for node in graph.nodes if node.attrs["shape"] == "oval"]
    assert ops[-2:] == ["mul", "elementwise_add"]
    assert 'label="X(x)"' in text


def test_a_graph_is_text():
    graph = graphviz.Graph('a "title"', rankdir="LR")
    rank = graph.rank_group("same", 1)
    first = graph.node("one", "n", rank=rank)
    graph.edge(first, graph.node("two", "n", color="red"), label="e")
    assert graph.code().splitlines() == [
        "digraph G {",
        'label="a \\"title\\"";',
        'rankdir="LR";',
        "{rank=same;n_1}",
        'n_1 [label="one"];',
        'n_2 [label="two",color="red"];',
        'n_1 -> n_2 [label="e"];',
        "}",
    ]


def test_layers_of_op_types():
    x = fluid.data("x", [2, 3])
    plus, cube = generate_layer_fn("elementwise_add"), generate_activation_fn("square")
    out = [plus(x=x, y=x, axis=-1, act="relu"), cube(x), plus(x, x)]
    feed = {"x": np.full((2, 3), -2.0, "float32")}
    result = fluid.Executor().run(feed=feed, fetch_list=out)
    assert [value[0, 0] for value in result] == [0.0, 4.0, -4.0]
    with pytest.raises(ValueError, match="not been registered"):
        generate_layer_fn("no_such_op")


def test_decorators_of_layers():
    @autodoc("Before. ")
    def relu(x):
        return x

    @templatedoc("relu")
    def other(x):
        """Says ${comment}"""
        return x

    assert relu.__doc__.startswith("Before. ")
    assert "max" in other.__doc__
    with pytest.warns(DeprecationWarning, match="other"):
        assert deprecated(other)(3) == 3


PATHS = """
import fluid
fluid.install_as_paddle()
from paddle.fluid.dataloader.batch_sampler import BatchSampler
from paddle.fluid.dataloader.dataset import Dataset
from paddle.fluid.layers.layer_function_generator import generate_layer_fn
from paddle.fluid.layers.loss import cross_entropy2
from paddle.fluid.dygraph.nn import Linear
from paddle.fluid.dygraph.base import to_variable
from paddle.fluid.contrib.extend_optimizer.extend_optimizer_with_weight_decay import (
    extend_with_decoupled_weight_decay,
)
from paddle.fluid import core, net_drawer, graphviz, Layer
print(core._Scope is core.Scope, Layer.__module__, Linear.__name__)
"""


def test_modules_are_where_scripts_import_them():
    done = subprocess.run([sys.executable, "-c", PATHS], capture_output=True, text=True)
    assert done.stdout == "True fluid.dygraph.layers Linear\n", done.stderr


def test_a_program_of_a_description():
    layers.fc(fluid.data("x", [None, 3]), 4)
    main = fluid.default_main_program()
    main._sync_with_cpp()
    again = fluid.Program._construct_from_desc(main.desc)
    assert [op.type for op in again.global_block().ops] == ["mul", "elementwise_add"]
    assert again._version == 1008005
