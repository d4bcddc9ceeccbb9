"""The picture: no two nodes on one place, layers in order, gradients beside their ops."""

import itertools
import random

import pytest

from compiler.ir.text.parser import parse
from compiler.passes.observers import stage
from compiler.report.graph_layers import Lane
from compiler.report.graph_layout import MAX_LONERS, layout, spread
from compiler.report.stage_graph import UNDRAWN, draw_stages

FORWARD, BACKWARD, UPDATE = Lane


def place(lanes, edges, partners=None):
    return layout(lanes, edges, partners or [None] * len(lanes)).points


def test_a_chain_runs_straight_down():
    assert place([FORWARD] * 3, [(0, 1), (1, 2)]) == ((0.0, 0.0), (0.0, 1.0), (0.0, 2.0))


def test_backward_is_next_to_forward_and_updates_at_the_right():
    # x → a → b; the gradients of b, then of a; an update of a's weight.
    lanes = [FORWARD, FORWARD, BACKWARD, BACKWARD, UPDATE]
    edges = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]
    places = place(lanes, edges, [None, None, 1, 0, None])
    rows = [y for _, y in places]
    assert rows == [0.0, 1.0, 1.0, 0.0, 0.0]
    columns = [x for x, _ in places]
    assert columns[0] == columns[1] < columns[2] == columns[3] < columns[4]


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_have_room_and_order(seed):
    numbers = random.Random(seed)
    count = numbers.randint(1, 60)
    pairs = itertools.combinations(range(count), 2)
    edges = [pair for pair in pairs if numbers.random() < 3 / count]
    lanes = [numbers.choice(list(Lane)) for _ in range(count)]
    result = layout(lanes, edges, [None] * count)
    assert len(set(result.points)) == count
    for (a, (x, y)), (b, (u, v)) in itertools.combinations(enumerate(result.points), 2):
        if y == v and lanes[a] == lanes[b]:
            assert abs(x - u) >= 1 - 1e-9
    for a, b in edges:
        if lanes[a] == lanes[b] == FORWARD:
            assert result.points[a][1] < result.points[b][1]
    assert result == layout(lanes, edges, [None] * count)


def test_cycles_are_laid_out():
    assert len(set(place([FORWARD] * 3, [(0, 1), (1, 2), (2, 0)]))) == 3


def test_isolated_nodes_form_a_block():
    count = 3 * MAX_LONERS
    places = place([FORWARD] * (count + 2), [(count, count + 1)])
    block = places[:count]
    assert len(set(places)) == count + 2
    assert min(y for _, y in block) > max(y for _, y in places[count:])
    assert 2 <= len({x for x, _ in block}) < len({y for _, y in block})


def test_spread_keeps_order_and_distance():
    places = spread([3.0, 1.0, 1.0, 9.0], [1.0, 1.0, 2.0, 1.0])
    gaps = [b - a for a, b in itertools.pairwise(places)]
    assert gaps[:2] == pytest.approx([1.0, 1.5])
    assert gaps[2] >= 1.5
    assert spread([], []) == []


BEFORE = """\
graph main {
  feed x: f32[2, 4]
  param w: f32[4, 4]
  (Out=h: f32[2, 4]) = mul(X=x, Y=w)
  (Out=y: f32[2, 4]) = relu(X=h)
  return y
}
"""


def test_nodes_keep_positions_across_stages():
    after = BEFORE.replace("relu(X=h)", "tanh(X=h)").replace(
        "  return", "  () = delete_var(X=h)\n  return"
    )
    stages = [stage(parse(text), name) for text, name in ((BEFORE, "a"), (after, "b"))]
    drawn = draw_stages(stages)
    assert [node.kind for node in drawn.nodes] == ["feed", "mul", "relu", "tanh"]
    assert drawn.orders == ((1, 2), (1, 3, UNDRAWN))
    links = {(link.start, link.stop): link.stages for link in drawn.links}
    assert links == {(0, 1): (0, 1), (1, 2): (0,), (1, 3): (1,)}
    assert len(set(drawn.layout.points)) == 4


def test_an_op_without_a_role_is_in_the_lane_of_its_neighbours():
    text = """\
graph main {
  feed x: f32[2, 4]
  param w: f32[4, 4]
  param lr: f32[1]
  (Out=v: f32[4, 4]) = scale(X=w)
  (Out=h: f32[2, 4]) = mul(X=x, Y=w)
  (Out=k: f32[2, 4]) = scale(X=h)
  (X@GRAD=g: f32[2, 4]) = relu_grad(Out=k, Out@GRAD=k)
  (Out=s: f32[2, 4]) = scale(X=g)
  (ParamOut=w#1: f32[4, 4] over w) = sgd(Param=w, Grad=v, LearningRate=lr)
  return s
}
"""
    lanes = {node.outputs[0]: node.lane for node in draw_stages([stage(parse(text), "a")]).nodes}
    assert [lanes[name] for name in ("x", "h", "k")] == [FORWARD] * 3
    assert [lanes[name] for name in ("g", "s")] == [BACKWARD] * 2
    assert [lanes[name] for name in ("v", "w#1")] == [UPDATE] * 2
