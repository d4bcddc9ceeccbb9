"""A module compares dynamic sizes, as it is bound, with what its ops require of them."""

import numpy as np
import pytest

import runtime
from compiler.driver import compile_graph
from compiler.errors import ShapeError
from compiler.ir.text.printer import parse

TARGETS = ("numpy", "native")
CASES = {
    "equal": (
        "feed x: f32[N, M]\n  (Out=y: f32[N, 3]) = mul(X=x, Y=w)  // model.py:7",
        "feed w: f32[5, 3]",
        {"x": (2, 4), "w": (5, 3)},
        "mul: axis 1 of X has size 4, expected 5, of X f32[2, 4], Y f32[5, 3]",
    ),
    "at least": (
        "feed x: f32[N]\n  (Out=y: f32[2], Indices=i: i64[2]) = top_k(X=x) {'k': 2}  // model.py:7",
        "",
        {"x": (1,)},
        "top_k: axis 0 of X has size 1, expected at least 2, of X f32[1]",
    ),
    "broadcasts": (
        "feed x: f32[N, 3]\n  (Out=y: f32[4, 3]) = expand_v2(X=x) {'shape': [4, 3]}  // model.py:7",
        "",
        {"x": (2, 3)},
        "expand_v2: axis 0 of X has size 2, expected 1 or 4, of X f32[2, 3]",
    ),
    "multiple": (
        "feed x: f32[2, C, 2, 2]\n"
        "  (Out=y: f32[2, C, 2, 2]) = shuffle_channel(X=x) {'group': 3}  // model.py:7",
        "",
        {"x": (2, 7, 2, 2)},
        "shuffle_channel: axis 1 of X has size 7, expected a multiple of 3, of X f32[2, 7, 2, 2]",
    ),
    "slice": (
        "feed x: f32[N, 3]\n"
        "  (Input@GRAD=y: f32[N, 3]) = slice_grad(Input=x, Out@GRAD=d)"
        " {'axes': [0], 'starts': [-2], 'ends': [9]}  // model.py:7",
        "feed d: f32[M, 3]",
        {"x": (5, 3), "d": (3, 3)},
        "slice_grad: axis 0 of Out@GRAD has size 3, expected 2, of Input f32[5, 3], "
        "Out@GRAD f32[3, 3]",
    ),
    "equal rows of parts, which are no views of the whole": (
        "feed x: f32[N + 1, 2]\n  (Out=a: f32[N + 1, 2]) = relu(X=x)\n"
        "  (Out=b: f32[M + 2, 3]) = relu(X=w)\n"
        "  (Out=c: f32[N + 1, 5]) = concat(X=[a, b]) {'axis': 1}  // model.py:7\n"
        "  (Out=y: f32[N + 1, 5]) = relu(X=c)",
        "feed w: f32[M + 2, 3]",
        {"x": (4, 2), "w": (5, 3)},
        "concat: axis 0 of X[0] has size 4, expected 5, of X[0] f32[4, 2], X[1] f32[5, 3]",
    ),
    "a number of elements": (
        "feed x: f32[2, N]\n  (Out=y: f32[2, 3]) = reshape(X=x) {'shape': [2, 3]}  // model.py:7",
        "",
        {"x": (2, 4)},
        "reshape: the number of elements of X is 8, expected 6, of X f32[2, 4]",
    ),
}


def module_of(body: str, feeds: str = "", target: str = "native"):
    graph = parse(f"graph main {{\n  {feeds}\n  {body}\n  return y\n}}\n")
    return compile_graph(graph, target=target).module


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_binding_raises_for_sizes_that_an_op_does_not_accept(name, target):
    body, feeds, shapes, message = CASES[name]
    compute = runtime.load(module_of(body, feeds, target))
    with pytest.raises(ShapeError) as error:
        compute({feed: np.ones(shape, np.float32) for feed, shape in shapes.items()})
    assert error.value.message == message
    assert error.value.source == "model.py:7"
    assert f" = {message.partition(':')[0]}(" in error.value.op


@pytest.mark.parametrize("target", TARGETS)
def test_offsets_must_not_be_empty(target):
    body = (
        "feed x: f32[5, 3]\n  feed o: i64[L]\n"
        "  (Y=y: f32[5, 3]) = sequence_reverse(X=x, X_lod=[o])  // model.py:7"
    )
    compute = runtime.load(module_of(body, target=target))
    with pytest.raises(ShapeError, match=r"axis 0 of X_lod\[0\] has size 0, expected at least 1"):
        compute({"x": np.ones((5, 3), np.float32), "o": np.zeros(0, np.int64)})


def test_sizes_known_at_compile_time_have_no_checks():
    body, feeds = (
        CASES["equal"][0].replace("[N, M]", "[2, 5]").replace("[N", "[2"),
        "feed w: f32[5, 3]",
    )
    assert (
        "raise"
        not in module_of(body, feeds).source.partition("def bind")[2].partition("def step")[0]
    )


def test_equal_requirements_are_checked_once():
    body = (
        "feed x: f32[N, M]\n  feed w: f32[5, 3]\n  feed v: f32[5, 3]\n"
        "  (Out=a: f32[N, 3]) = mul(X=x, Y=w)\n  (Out=b: f32[N, 3]) = mul(X=x, Y=v)\n"
        "  (Out=y: f32[N, 3]) = elementwise_add(X=a, Y=b)"
    )
    assert module_of(body).source.count("if M != 5:") == 1


def test_ops_of_a_branch_that_does_not_run_are_not_checked():
    text = """
graph main {
  feed x: f32[N, M]
  feed w: f32[5, 3]
  (Out=c: bool[1]) = fill_constant() {'shape': [1], 'value': 0.0, 'dtype': 0}
  (Out=y: f32[2, 3]) = fill_constant() {'shape': [2, 3], 'value': 7.0, 'dtype': 5}
  (Written=[y#1: f32[2, 3] over y]) = if(Cond=[c], Captured=[y, x, w]) graph branch {
    feed y: f32[2, 3]
    feed x: f32[N, M]
    feed w: f32[5, 3]
    (Out=p: f32[N, 3]) = mul(X=x, Y=w)
    (Out=q: f32[3]) = reduce_sum(X=p) {'dim': [0]}
    (Out=r: f32[2, 3]) = elementwise_add(X=y, Y=q) {'axis': 1}
    return r
  }
  return y#1
}
"""
    compute = runtime.load(compile_graph(parse(text), target="numpy").module)
    feed = {"x": np.ones((2, 4), np.float32), "w": np.ones((5, 3), np.float32)}
    assert compute(feed)[0][0, 0] == 7.0
