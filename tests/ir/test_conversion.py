"""Program ⇄ Graph: versions for names written twice, program order, captured blocks, errors."""

import pytest

from compiler.errors import CompileError, MissingSlot, UnknownOp
from compiler.ir.analysis.verifier import verify
from compiler.ir.conversion.graph_to_program import to_program
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.dims import Dim
from compiler.ir.program import Program
from compiler.ir.text.printer import parse_program, show

N = Dim.named("N")

TRAIN = """
program {
  block 0 {
    var x: f32[?, 4]
    var w: f32[4, 4] {'persistable': True}
    var lr: f32[1] {'persistable': True}
    var h: f32[?, 4]
    var g: f32[4, 4]
    (Out=h) = mul(X=x, Y=w)  // train.py:3
    (X@GRAD=g) = relu_grad(Out=w, Out@GRAD=w)
    (Out=g) = scale(X=g) {'scale': 0.5}
    (ParamOut=w) = sgd(Grad=g, LearningRate=lr, Param=w)
    (Out=h) = mul(X=h, Y=w)
  }
}
"""

SWITCH = """
program {
  block 0 {
    var x: f32[1]
    var rate: f32[1] {'persistable': True}
    var yes: bool[1]
    var zero: f32[1]
    var scope: f32[] {'kind': 'STEP_SCOPES'}
    (Out=zero) = fill_constant() {'shape': [1], 'value': 0.0}
    (Out=yes) = less_than(X=zero, Y=x)
    (Out=rate, Scope=scope) = conditional_block(Cond=yes, Input=x) {'is_scalar_condition': True, 'sub_block': block(1)}
  }
  block 1 (parent 0) {
    var two: f32[1]
    (Out=two) = scale(X=x) {'scale': 2.0}
    (Out=rate) = assign(X=two)
  }
}
"""


def graph_of(text, **feed):
    return to_graph(parse_program(text), feed, [])


def test_a_second_write_is_a_new_var_and_state_keeps_its_storage():
    graph = graph_of(TRAIN, x=(N, 4))
    verify(graph)
    assert [repr(op) for op in graph.ops()] == [
        "h = mul(x, w)",
        "g = relu_grad(w, w)",
        "g#1 = scale(g)",
        "w#1 = sgd(g#1, lr, w)",
        "h#1 = mul(h, w#1)",
    ]
    assert graph.find("w", 1).overwrites is graph.find("w")
    assert graph.find("h", 1).overwrites is None
    assert [var.label for var in graph.params()] == ["w", "lr"]


def test_what_updates_state_waits_for_its_other_readers():
    graph = graph_of(TRAIN, x=(N, 4))
    update = graph.producer(graph.find("w", 1))
    assert {op.kind for op in graph.predecessors(update)} == {"mul", "relu_grad", "scale"}


def test_sizes_follow_from_the_feeds():
    graph = graph_of(TRAIN, x=(N, 4))
    assert str(graph.find("h", 1).type) == "f32[N, 4]"


def test_there_and_back_is_the_same_program():
    program = parse_program(TRAIN)
    again = to_program(to_graph(program, {"x": (N, 4)}, []), like=program)
    assert [op for op in show(again).splitlines() if "=" in op] == [
        op for op in show(program).splitlines() if "=" in op
    ]


def test_a_version_that_is_read_after_the_next_is_written_gets_its_own_name():
    graph = graph_of(TRAIN, x=(N, 4))
    ops = graph.ops()
    graph.op("relu", {"X": [graph.find("h")]}, {"Out": [graph.fresh("late", ops[0]["Out"].type)]},
             last=True)  # fmt: skip
    assert [op.outputs["Out"] for op in to_program(graph).blocks[0].ops if op.type == "mul"] == [
        ["h"],
        ["h@v1"],
    ]


def test_a_block_sees_what_it_reads_and_carries_what_it_may_not_write():
    graph = graph_of(SWITCH, x=(1,))
    verify(graph)
    branch = graph.ops()[-1]
    assert [var.label for var in branch.inputs["Captured"]] == ["rate", "x"]
    assert [var.label for var in branch.body.feeds()] == ["rate", "x"]
    assert branch["Written"].overwrites is graph.find("rate")
    assert [var.label for var in branch.body.results] == ["rate#1"]


def test_a_block_converts_back_to_a_block():
    program = to_program(graph_of(SWITCH, x=(1,)))
    assert [[op.type for op in block.ops] for block in program.blocks] == [
        ["fill_constant", "less_than", "conditional_block"],
        ["scale", "assign"],
    ]
    assert program.blocks[1].ops[1].outputs == {"Out": ["rate"]}
    assert program.blocks[0].ops[2].attrs["sub_block"] == 1


def program_with(kind, inputs, outputs, attrs=None):
    program = Program()
    for name in ("x", "y"):
        program.blocks[0].add_var(name, shape=(-1, 4))
    program.blocks[0].add_op(kind, inputs, outputs, attrs, "net.py:7")
    return program


def test_a_variable_nobody_writes_or_feeds_is_named_with_the_users_line():
    program = program_with("relu", {"X": ["x"]}, {"Out": ["y"]})
    with pytest.raises(CompileError) as caught:
        to_graph(program, {}, ["y"])
    assert "variable 'x' has no value" in str(caught.value)
    assert "(Out=y) = relu(X=x)" in str(caught.value)
    assert "net.py:7" in str(caught.value)


def test_an_unknown_op_is_named_with_the_closest_known_one():
    with pytest.raises(UnknownOp, match='Operator "rellu" has not been registered'):
        to_graph(program_with("rellu", {"X": ["x"]}, {"Out": ["y"]}), {"x": (N, 4)}, ["y"])


def test_a_missing_slot_is_named():
    with pytest.raises(MissingSlot, match="Input Y not found: mul needs it"):
        to_graph(program_with("mul", {"X": ["x"]}, {"Out": ["y"]}), {"x": (N, 4)}, ["y"])


def test_an_unknown_fetch_is_named_with_what_might_be_meant():
    program = program_with("relu", {"X": ["x"]}, {"Out": ["y"]})
    with pytest.raises(CompileError, match="fetch 'why' is not a variable the program computes"):
        to_graph(program, {"x": (N, 4)}, ["why"])


def test_an_unknown_feed_is_named():
    program = program_with("relu", {"X": ["x"]}, {"Out": ["y"]})
    with pytest.raises(CompileError, match="feed 'z' is not a variable"):
        to_graph(program, {"z": (N, 4)}, ["y"])


def test_slots_of_a_gradient_that_only_the_forward_op_has_are_let_pass():
    """The reference saves batch_norm_grad with Mean and Variance where it uses global statistics."""
    program = Program()
    for name, shape in {"x": (2, 3), "y": (2, 3), "g": (2, 3), "spare": (7,)}.items():
        program.blocks[0].add_var(name, shape=shape)
    inputs = {"Out": ["y"], "Out@GRAD": ["g"], "X": ["spare"]}
    program.blocks[0].add_op("relu_grad", inputs, {"X@GRAD": ["x"]}, {}, "net.py:9")
    graph = to_graph(program, dict.fromkeys("yg", (2, 3)), ["x"])
    assert sorted(graph.ops()[0].inputs) == ["Out", "Out@GRAD"]


def test_attributes_that_only_the_forward_op_has_are_let_pass():
    """The reference copies all attributes of `split` to its gradient `concat`."""
    program = Program()
    for name, columns in {"a": 1, "b": 2, "both": 3}.items():
        program.blocks[0].add_var(name, shape=(2, columns))
    attrs = {"axis": 1, "num": 0, "sections": [1, 2], "op_role": 1}
    program.blocks[0].add_op("concat", {"X": ["a", "b"]}, {"Out": ["both"]}, attrs)
    graph = to_graph(program, {"a": (2, 1), "b": (2, 2)}, ["both"])
    verify(graph)
    assert graph.ops()[0].attrs["axis"] == 1
    assert "sections" not in graph.ops()[0].attrs
