"""Reverse mode: which ops, names and roles it writes, and that the numbers are gradients."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import compiler  # noqa: F401 -- fills the registry
from compiler.errors import CompileError, UnknownOp
from compiler.interpret import run
from compiler.ir.autodiff.append_backward import append_backward, append_gradients, note_parameters
from compiler.ir.autodiff.grad_ops import gradient_ops
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.opdef import OpDef, Slots, reads, writes
from compiler.ir.opdef import definition as opdef
from compiler.ir.opdef.type_inference import infer_op
from compiler.ir.program import Block, OpDesc, OpRole, Program
from compiler.ir.types import DType, TensorType

SIZE = 3
LINE = "net.py:7"


def block(*inputs: str) -> Block:
    """A block with inputs [3] of float64."""
    created = Program().blocks[0]
    for name in inputs:
        created.add_var(name, shape=[SIZE], dtype=DType.FP64)
    return created


def add(block: Block, out: str, kind: str, *names: str, **attrs: Any) -> OpDesc:
    """Append `out = kind(names)`; one name is X, two are X and Y."""
    if kind == "sum":
        inputs = {"X": list(names)}
    else:
        inputs = {slot: [name] for slot, name in zip("XY", names, strict=False)}
    if out not in block.vars:
        block.add_var(out, dtype=DType.FP64)
    op = block.add_op(kind, inputs, {"Out": [out]}, attrs, LINE)
    infer_op(block, op)
    return op


def lines(ops: list[OpDesc]) -> list[str]:
    """Each op in a line: results, type, operands."""
    return [f"{'+'.join(op.writes())} = {op.type}({', '.join(op.reads())})" for op in ops]


def values(block: Block, feed: dict[str, np.ndarray], *fetch: str) -> list[np.ndarray]:
    shapes = {name: array.shape for name, array in feed.items()}
    return run(to_graph(block.owner, shapes, list(fetch)), feed, {})


# ---- names and order


def test_a_chain() -> None:
    net = block("x")
    add(net, "h", "tanh", "x")
    add(net, "loss", "mean", "h")
    result = append_backward(net, "loss")
    assert lines(net.ops[2:]) == [
        "loss@GRAD = fill_constant()",
        "h@GRAD = mean_grad(loss@GRAD, h)",
        "x@GRAD = tanh_grad(h, h@GRAD)",
    ]
    assert [int(op.role) for op in net.ops] == [0, 256, 257, 1, 1]
    assert {op.source for op in net.ops} == {LINE}
    assert result == {"loss": "loss@GRAD", "h": "h@GRAD", "x": "x@GRAD"}
    gradient = net.vars["x@GRAD"]
    assert (gradient.dims, gradient.element) == ((SIZE,), DType.FP64)


def test_parts_are_summed_before_the_first_reader() -> None:
    net = block("x")
    add(net, "h", "tanh", "x")
    add(net, "a", "square", "h")
    add(net, "b", "elementwise_mul", "h", "h")
    add(net, "total", "elementwise_add", "a", "b")
    add(net, "loss", "mean", "total")
    append_backward(net, "loss")
    part = "h@GRAD@RENAME@block0@{}".format
    assert lines(net.ops[8:]) == [
        f"{part(0)}+{part(1)} = elementwise_mul_grad(b@GRAD, h, h)",
        f"{part(2)} = square_grad(a@GRAD, h)",
        f"h@GRAD = sum({part(0)}, {part(1)}, {part(2)})",
        "x@GRAD = tanh_grad(h, h@GRAD)",
    ]
    assert net.ops[-2].attrs == {"use_mkldnn": False, "op_role": 1}


def test_parts_that_nobody_reads_are_summed_at_the_end() -> None:
    net = block("x", "y")
    add(net, "a", "elementwise_sub", "y", "x")
    add(net, "b", "elementwise_add", "x", "a")
    add(net, "loss", "mean", "b")
    append_backward(net, "loss")
    assert lines(net.ops[-1:]) == ["x@GRAD = sum(x@GRAD@RENAME@block0@0, x@GRAD@RENAME@block0@1)"]
    assert lines(net.ops[-2:-1]) == [
        "y@GRAD+x@GRAD@RENAME@block0@1 = elementwise_sub_grad(a@GRAD, y, x)"
    ]


def test_parts_of_what_depends_on_nothing_wanted_are_summed_all_the_same() -> None:
    net = block("x", "w")
    net.vars["x"].stop_gradient = True
    add(net, "h", "tanh", "x")
    add(net, "twice", "elementwise_add", "h", "h")
    add(net, "total", "elementwise_add", "twice", "w")
    add(net, "loss", "mean", "total")
    append_backward(net, "loss")
    part = "h@GRAD@RENAME@block0@{}".format
    assert lines(net.ops[-2:]) == [
        f"{part(0)}+{part(1)} = elementwise_add_grad(twice@GRAD, h, h)",
        f"h@GRAD = sum({part(0)}, {part(1)})",
    ]


def test_gradients_that_are_ops() -> None:
    net = block("x", "y")
    add(net, "a", "scale", "x", scale=3.0, bias=1.0)
    add(net, "b", "sum", "a", "y", "y")
    add(net, "loss", "mean", "b")
    append_backward(net, "loss")
    assert [op.type for op in net.ops[3:]] == [
        *["fill_constant", "mean_grad"],
        *["scale"] * 4,
        "sum",
    ]
    assert [op.attrs.get("scale") for op in net.ops[5:9]] == [1.0, 1.0, 1.0, 3.0]


def test_a_second_pass_takes_other_names() -> None:
    net = block("x")
    add(net, "h", "tanh", "x")
    add(net, "loss", "mean", "h")
    append_backward(net, "loss")
    result = append_backward(net, "loss")
    assert result == {"loss": "loss@GRAD_0", "h": "grad/grad/h@GRAD", "x": "grad/grad/x@GRAD"}
    assert lines(net.ops[-1:]) == ["grad/grad/x@GRAD = tanh_grad(h, grad/grad/h@GRAD)"]
    third = append_backward(net, "loss")
    assert third == {
        "loss": "loss@GRAD_1",
        "h": "grad/grad/grad/h@GRAD",
        "x": "grad/grad/grad/x@GRAD",
    }


def test_whoever_asks_is_notified_of_each_op() -> None:
    net = block("x")
    add(net, "b", "elementwise_mul", "x", "x")
    add(net, "loss", "mean", "b")
    notified: list[tuple[str, list[str]]] = []
    append_backward(
        net,
        "loss",
        (),
        lambda _, op, known: notified.append((op.type, [known[n] for n in op.writes()])),
    )
    assert notified == [
        ("fill_constant", ["loss"]),
        ("mean_grad", ["b"]),
        ("elementwise_mul_grad", ["x", "x"]),
        ("sum", ["x"]),
    ]


def test_parameters_are_noted_where_their_gradient_is_complete() -> None:
    net = block("x", "w")
    add(net, "a", "elementwise_mul", "x", "w")
    add(net, "b", "elementwise_mul", "a", "w")
    add(net, "loss", "mean", "b")
    result = append_backward(net, "loss", no_grad={"x"})
    version = net.owner.version
    note_parameters(net, [("w", result["w"]), ("q", result["w"])])
    assert net.ops[-1].type == "sum"
    assert net.ops[-1].attrs["op_role_var"] == ["q", "w@GRAD", "w", "w@GRAD"]
    assert net.owner.version > version


# ---- what has no gradient


def test_stopped_and_listed_and_whole_numbers_have_none() -> None:
    net = block("x", "y", "z")
    net.vars["y"].stop_gradient = True
    add(net, "a", "elementwise_mul", "x", "y")
    add(net, "b", "elementwise_mul", "a", "z")
    net.add_var("n", shape=[SIZE], dtype=DType.INT64)
    add(net, "c", "cast", "n", in_dtype=3, out_dtype=6)
    add(net, "d", "elementwise_add", "b", "c")
    add(net, "loss", "mean", "d")
    result = append_backward(net, "loss", no_grad=["z"])
    assert set(result) == {"loss", "d", "c", "b", "a", "x"}
    assert net.ops[-1].outputs == {"X@GRAD": ["x@GRAD"], "Y@GRAD": []}


def test_a_cut_leaves_out_what_is_behind_it() -> None:
    net = block("x", "y")
    add(net, "a", "tanh", "x")
    add(net, "b", "elementwise_add", "a", "y")
    add(net, "loss", "mean", "b")
    append_backward(net, "loss", no_grad=["a"])
    assert [op.type for op in net.ops[3:]] == ["fill_constant", "mean_grad", "elementwise_add_grad"]


def test_what_does_not_lead_to_the_loss_is_left_alone() -> None:
    net = block("x")
    add(net, "a", "tanh", "x")
    add(net, "aside", "square", "a")
    add(net, "loss", "mean", "a")
    add(net, "later", "square", "loss")
    append_backward(net, "loss")
    assert [op.type for op in net.ops[4:]] == ["fill_constant", "mean_grad", "tanh_grad"]


def test_ops_without_gradient_let_gradients_pass() -> None:
    net = block("w", "g")
    net.add_var("rate", shape=[1], dtype=DType.FP64)
    net.add_op(
        "sgd", {"Param": ["w"], "Grad": ["g"], "LearningRate": ["rate"]}, {"ParamOut": ["w"]}
    )
    add(net, "loss", "mean", "w")
    add(net, "less", "less_than", "loss", "loss")
    assert append_backward(net, "loss") == {"loss": "loss@GRAD", "w": "w@GRAD"}


@pytest.fixture
def two_outputs() -> Iterator[None]:
    """An op with two outputs whose gradient reads both of theirs; the second may be missing."""

    class Halves(OpDef, op="halves"):
        X = reads()
        Left = writes()
        Right = writes()
        Rest = writes(optional=True)

        def infer(self, s: Slots[TensorType]) -> Any:
            return {"Left": s.X, "Right": s.X, "Rest": s.X}

        def numpy(self, X: Any) -> Any:
            return {"Left": X * 0.25, "Right": X * 0.75, "Rest": X}

        def grad(self, d_Left: Any, d_Right: Any, d_Rest: Any) -> Any:
            return {"X": d_Left * 0.25 + d_Right * 0.75 + (0.0 if d_Rest is None else d_Rest)}

    yield
    for name in (Halves.kind, "halves_grad"):
        del opdef._REGISTRY[name]


@pytest.mark.usefixtures("two_outputs")
def test_missing_gradients_are_zeros_or_left_out() -> None:
    net = block("x")
    for name in ("left", "right", "rest"):
        net.add_var(name, dtype=DType.FP64)
    outputs = {"Left": ["left"], "Right": ["right"], "Rest": ["rest"]}
    infer_op(net, net.add_op("halves", {"X": ["x"]}, outputs))
    add(net, "loss", "mean", "left")
    result = append_backward(net, "loss")
    assert lines(net.ops[-2:]) == [
        "right@GRAD = fill_zeros_like(right)",
        "x@GRAD = halves_grad(left@GRAD, right@GRAD)",
    ]
    assert net.ops[-1].inputs["Rest@GRAD"] == []
    gradient = values(net, {"x": np.ones(SIZE)}, result["x"])[0]
    assert gradient == pytest.approx(0.25 / SIZE)


# ---- missed


def test_a_loss_that_is_no_number() -> None:
    net = block("x")
    add(net, "h", "tanh", "x")
    with pytest.raises(
        CompileError, match=r"the loss 'h' has shape \(3,\), expected \(1,\)"
    ) as caught:
        append_backward(net, "h")
    assert caught.value.source == LINE
    assert "fluid.layers.mean" in caught.value.hint
    assert len(net.ops) == 1


def test_a_loss_that_nobody_computes() -> None:
    with pytest.raises(CompileError, match="variable 'x' is computed by no op of its block"):
        append_backward(block("x"), "x")


def test_an_unknown_op_leaves_the_block_as_it_was() -> None:
    net = block("x")
    net.add_var("h", shape=[SIZE], dtype=DType.FP64)
    net.add_op("mystery", {"X": ["x"]}, {"Out": ["h"]})
    add(net, "loss", "mean", "h")
    version, declared = net.owner.version, list(net.vars)
    with pytest.raises(UnknownOp, match="mystery"):
        append_backward(net, "loss")
    assert (len(net.ops), net.owner.version, list(net.vars)) == (2, version, declared)
    assert net.ops[-1].role == OpRole.FORWARD


def test_gradient_ops_of_one_op() -> None:
    op = OpDesc("mul", {"X": ["x"], "Y": ["w"]}, {"Out": ["h"]}, {"x_num_col_dims": 2})
    (created,) = gradient_ops(op, "d_{}".format)
    assert created.inputs == {"Out@GRAD": ["d_h"], "X": ["x"], "Y": ["w"]}
    assert created.outputs == {"X@GRAD": ["d_x"], "Y@GRAD": ["d_w"]}
    assert (created.type, created.attrs) == ("mul_grad", {"x_num_col_dims": 2})
    assert gradient_ops(OpDesc("less_than", {"X": ["x"], "Y": ["w"]}, {"Out": ["h"]}), str) == []


# ---- gradients of what, with respect to what


def test_gradients_with_respect_to_inputs() -> None:
    net = block("x", "y", "z")
    add(net, "a", "elementwise_mul", "x", "y")
    add(net, "b", "tanh", "z")
    result = append_gradients(net, {"a": None, "b": None}, ["x", "z", "b"])
    feed = {"x": np.ones(3), "y": np.array([1.0, 2.0, 3.0]), "z": np.zeros(3)}
    assert set(result) == {"a", "b", "x", "z"}
    of_x, of_z, of_b = values(net, feed, *(result[name] for name in ("x", "z", "b")))
    assert (of_x.tolist(), of_z.tolist(), of_b.tolist()) == ([1, 2, 3], [1, 1, 1], [1, 1, 1])
    assert "y@GRAD" not in net.vars


def test_gradients_of_targets_may_be_given() -> None:
    net = block("x", "seed")
    add(net, "a", "square", "x")
    result = append_gradients(net, {"a": "seed"}, ["x"])
    feed = {"x": np.array([1.0, 2.0, 3.0]), "seed": np.array([1.0, 0.0, -1.0])}
    assert values(net, feed, result["x"])[0].tolist() == [2.0, 0.0, -6.0]


def test_gradients_of_a_target_that_is_another_s_input() -> None:
    net = block("x")
    add(net, "a", "scale", "x", scale=2.0)
    add(net, "b", "scale", "a", scale=3.0)
    result = append_gradients(net, {"a": None, "b": None}, ["x"])
    assert values(net, {"x": np.ones(3)}, result["x"])[0].tolist() == [8.0, 8.0, 8.0]


def test_ones_for_a_target_of_unknown_size() -> None:
    net = Program().blocks[0]
    net.add_var("x", shape=[-1, 2], dtype=DType.FP64)
    add(net, "a", "square", "x")
    result = append_gradients(net, {"a": None}, ["x"])
    x = np.array([[1.0, np.inf], [3.0, 4.0]])
    assert values(net, {"x": x}, result["x"])[0].tolist() == (2 * x).tolist()


def test_an_input_that_nothing_depends_on_has_no_gradient() -> None:
    net = block("x", "y")
    add(net, "a", "square", "x")
    assert "y" not in append_gradients(net, {"a": None}, ["x", "y"])
