"""Passes that scripts apply to graphs by name: what they make, and that results stay."""

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from fluid import core
from fluid.framework import Block, Program


def passed(names):
    """The default program after passes, as scripts of release 1.8.5 make it of a description."""
    graph = core.Graph(fluid.default_main_program().desc)
    graph.set_not_owned("__param_scope__", fluid.global_scope())
    builder = core.PassBuilder()
    for name in names:
        builder.append_pass(name).set("use_gpu", False)
    program = Program()
    builder.append_pass("graph_to_program_pass").set_not_owned("program", program.desc)
    for each in builder.all_passes():
        each.apply(graph)
    program.blocks = [Block(program, index) for index in range(program.desc.num_blocks())]
    program._sync_with_cpp()
    return program


def shown(program):
    return [(op.type, op.input_arg_names, op.output_arg_names) for op in program.block(0).ops]


def check_results(exe, names, feed, fetch):
    """The types of the ops after passes; the fetches must be as before."""
    exe.run(fluid.default_startup_program())
    before = exe.run(feed=feed, fetch_list=fetch)
    program = passed(names)
    after = exe.run(program, feed=feed, fetch_list=[var.name for var in fetch])
    for was, now in zip(before, after, strict=True):
        np.testing.assert_allclose(now, was, rtol=1e-4, atol=1e-6)
    return [op.type for op in program.block(0).ops]


def test_full_connections_become_fc(fresh_programs, exe):
    x = fluid.data("x", [4, 3, 8])
    first = fluid.layers.fc(x, 6, num_flatten_dims=2, act="relu")
    second = fluid.layers.fc(first, 5, num_flatten_dims=2)
    fetch = [first, second, fluid.layers.softmax(second)]
    feed = {"x": np.random.RandomState(0).rand(4, 3, 8).astype("float32")}
    assert check_results(exe, ["fc_fuse_pass"], feed, fetch) == ["fc", "fc", "softmax"]
    fused = passed(["fc_fuse_pass"]).block(0)
    assert shown(fused.program)[0] == ("fc", ["fc_0.b_0", "x", "fc_0.w_0"], ["fc_0.tmp_2"])
    assert fused.ops[0].attr("in_num_col_dims") == 2
    assert sorted(name for name in fused.vars if name.startswith("fc_0")) == [
        "fc_0.b_0",
        "fc_0.tmp_2",
        "fc_0.w_0",
    ]


def test_only_full_connections_become_fc(fresh_programs):
    """Not without a bias, nor for other activations, nor if something else reads the product."""
    x = fluid.data("x", [4, 8])
    layers = fluid.layers
    layers.tanh(layers.fc(x, 5, bias_attr=False))
    product = layers.mul(x, layers.create_parameter([8, 5], "float32"))
    bias = layers.create_parameter([5], "float32")
    layers.elementwise_add(layers.elementwise_add(product, bias), product)
    layers.elementwise_add(layers.mul(x, layers.create_parameter([8, 4], "float32")), x[0, :4])
    layers.fc(x, 5, act="tanh")
    types = [op.type for op in passed(["fc_fuse_pass"]).block(0).ops]
    before = [op.type for op in fluid.default_main_program().block(0).ops]
    assert types == [*before[:-3], "fc", "tanh"]


def test_batch_norms_are_folded(fresh_programs, exe):
    image = fluid.data("x", [2, 3, 6, 6])
    conv = fluid.layers.conv2d(image, 4, 3, bias_attr=False)
    norm = fluid.layers.batch_norm(conv, is_test=True, moving_mean_name="mean")
    feed = {"x": np.random.RandomState(0).rand(2, 3, 6, 6).astype("float32")}
    types = check_results(exe, ["conv_bn_fuse_pass"], feed, [norm])
    assert types == ["conv2d", "elementwise_add"]


def test_a_pass_sets_test_mode(fresh_programs):
    fluid.layers.dropout(fluid.data("x", [2]), 0.5)
    assert passed(["is_test_pass"]).block(0).ops[0].attr("is_test") is True
    assert fluid.default_main_program().block(0).ops[0].attr("is_test") is False


def test_the_list_of_passes_is_edited():
    builder = core.PassBuilder()
    builder.append_pass("is_test_pass")
    builder.insert_pass(0, "fc_fuse_pass")
    assert [each.type() for each in builder.all_passes()] == ["fc_fuse_pass", "is_test_pass"]
    builder.remove_pass(0)
    assert [each.type() for each in builder.all_passes()] == ["is_test_pass"]
    for wrong in (lambda: builder.remove_pass(1), lambda: builder.insert_pass(2, "is_test_pass")):
        with pytest.raises(CompileError, match="outside the list of 1 passes"):
            wrong()


def test_a_block_of_an_index_has_what_the_description_says(fresh_programs):
    """With its parent, and as the last writer of its outputs."""
    x = fluid.data("x", [1])
    fluid.layers.cond(x < 1.0, lambda: x + 1.0, lambda: x)
    program = fluid.default_main_program().clone()
    before = str(program)
    blocks = [Block(program, index) for index in range(program.num_blocks)]
    program.blocks = blocks
    assert str(program) == before and blocks[1].parent is blocks[0]
    written = blocks[0].ops[0].output_arg_names[0]
    assert blocks[0].var(written).op is blocks[0].ops[0]
    assert Block(Program(), 3).ops == []


def test_a_compiled_program_has_a_graph(fresh_programs):
    fluid.layers.relu(fluid.data("x", [1]))
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    assert sorted(node.name() for node in compiled._graph.nodes()) == ["relu", "relu_0.tmp_0", "x"]
