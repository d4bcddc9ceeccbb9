"""Graphviz output: its content, and escaping."""

import re

from hypothesis import given

from compiler.ir.graph import Graph
from compiler.ir.text.dot import dot
from compiler.ir.text.printer import parse
from tests.ir.random_graphs import graphs

GRAPH = """\
graph main {
  feed x: f32[N, 4]
  feed c: bool[1]
  param w: f32[4, 4]
  param lr: f32[1]
  (Out="my \\"h\\"": f32[N, 4]) = mul(X=x, Y=w)  // train.py:12
  (Out=y: f32[N, 4]) = relu(X="my \\"h\\"") @k1 @numpy
  (Out=z: f32[N, 4]) = tanh(X=y) @k1 @numpy
  (ParamOut=w#1: f32[4, 4] over w) = sgd(Param=w, Grad=w, LearningRate=lr)
  (Written=[z#1: f32[N, 4] over z]) = if(Cond=[c], Captured=[z]) graph b {
    feed z: f32[N, 4]
    (Out=z#1: f32[N, 4]) = abs(X=z)
    return z#1
  }
  return z#1
}
"""


# ---- DOT ----


def test_dot_shows_ops_vars_kernels_and_bodies():
    text = dot(parse(GRAPH))
    assert (
        'op0 [label="mul\\ntrain.py:12", tooltip="(Out=\\"my \\\\\\"h\\\\\\"\\") = mul(X=x, Y=w)"];'
        in text
    )
    assert 'op0 -> op1 [label="my \\"h\\"\\nf32[N, 4]"];' in text
    assert 'subgraph cluster_kernel1 {\n    label="kernel 1";' in text
    assert 'subgraph cluster_op4 {\n    label="b";' in text
    assert 'op4_op0 [label="abs"' in text
    assert 'label="feed x\\nf32[N, 4]", shape=ellipse' in text
    assert 'label="param w\\nf32[4, 4]", shape=ellipse' in text
    assert 'label="return z#1\\nf32[N, 4]", shape=ellipse, style=bold' in text
    assert 'label="keep w#1\\nf32[4, 4]", shape=ellipse, style=bold' in text
    assert "op0 -> op3 [style=dashed];" in text


def test_what_is_read_for_its_shape_is_dotted():
    text = dot(
        parse(
            "graph main {\n feed d: f32[N, 4]\n feed x: f32[N, 4]\n"
            " (X@GRAD=g: f32[N, 4]) = elementwise_add_grad(Out@GRAD=d, X=x, Y=x)\n}"
        )
    )
    assert 'var1 -> op0 [label="x\\nf32[N, 4]", style=dotted];' in text
    assert 'var0 -> op0 [label="d\\nf32[N, 4]"];' in text


STRING = r'"(?:[^"\\]|\\.)*"'


@given(graphs())
def test_dot_is_well_formed(g: Graph):
    """Braces balance outside of strings, and edges lead to nodes that are there."""
    bare = re.sub(STRING, "", dot(g))
    depth = 0
    for character in bare:
        depth += (character == "{") - (character == "}")
        assert depth >= 0
    assert depth == 0
    nodes = set(re.findall(r"^ *(\w+) \[", bare, re.MULTILINE)) - {"node", "edge"}
    for start, end in re.findall(r"(\w+) -> (\w+)", bare):
        assert {start, end} <= nodes
