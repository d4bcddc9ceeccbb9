"""Editing graphs: ops are added at valid positions, and nothing is lost or leaked."""

import random
import time

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import BadAttribute, UnknownOp
from compiler.ir.analysis.verifier import verify
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.text.printer import parse, same, show
from compiler.ir.types import DType, TensorType
from tests.ir.random_graphs import graphs

ROW = TensorType(DType.FP32, (3, 4))
UPDATE = """\
graph main {
  feed x: f32[3, 4]
  param w: f32[3, 4]
  param lr: f32[1]
  (Out=a: f32[3, 4]) = relu(X=w)
  (Out=b: f32[3, 4]) = elementwise_add(X=a, Y=w)
  (ParamOut=w#1: f32[3, 4] over w) = sgd(Param=w, Grad=b, LearningRate=lr)
  (Out=y: f32[3, 4]) = relu(X=w#1)
  return y
}
"""


def find(g: Graph, label: str) -> Var:
    return next(var for var in g.vars() if var.label == label)


def relu(g: Graph, x: Var, name: str, last: bool = False) -> Op:
    return g.op("relu", {"X": [x]}, {"Out": [g.fresh(name, ROW)]}, last=last)


# ---- reading ----


def test_reading():
    g = parse(UPDATE)
    first, add, sgd, last = g.ops()
    w, w1, a = find(g, "w"), find(g, "w#1"), find(g, "a")
    assert (g.feeds(), g.params()) == ([find(g, "x")], [w, find(g, "lr")])
    assert (g.producer(a), g.producer(w), g.producer(w1)) == (first, None, sgd)
    assert g.readers(w) == [first, add, sgd]
    assert (g.overwriter(w), g.overwriter(w1), w1.storage, w.storage) == (w1, None, w, w)
    assert (g.latest("w"), g.latest("z"), g.find("w", 1), g.find("w", 2)) == (w1, None, w1, None)
    assert (len(g), list(g), a in g, sgd in g) == (4, g.ops(), True, True)
    assert g.predecessors(sgd) == [add, first]
    assert g.predecessors(last) == [sgd]
    assert (add["X"], add["Out"], add.reads(), add.writes()) == (
        a,
        find(g, "b"),
        [a, w],
        [find(g, "b")],
    )
    with pytest.raises(KeyError):
        add["Grad"]


def test_reading_is_a_snapshot():
    g = parse(UPDATE)
    for op in g.ops():
        relu(g, op.writes()[0], "more")
    for var in g.vars():
        g.fresh(var.name, ROW)
    assert len(g) == 8


# ---- adding ----


def test_an_op_follows_the_last_producer_it_reads():
    g = parse(UPDATE)
    new = relu(g, find(g, "a"), "new")
    assert g.ops().index(new) == 1
    newer = relu(g, find(g, "a"), "new")
    assert [g.ops().index(op) for op in (new, newer)] == [1, 2]
    first = relu(g, find(g, "x"), "new")
    assert g.ops()[0] is first
    last = relu(g, find(g, "x"), "new", last=True)
    assert g.ops()[-1] is last
    verify(g)


def test_an_op_that_overwrites_follows_the_readers_of_what_it_overwrites():
    g = parse(UPDATE)
    w1 = find(g, "w#1")
    w2 = g.next_version(w1, ROW, same_storage=True)
    inputs = {"Param": [w1], "Grad": [find(g, "x")], "LearningRate": [find(g, "lr")]}
    sgd = g.op("sgd", inputs, {"ParamOut": [w2]})
    assert g.ops()[-1] is sgd
    verify(g)


@given(graphs(), st.integers(0, 2**32))
def test_inserted_ops_keep_a_graph_valid(g: Graph, seed: int):
    rng = random.Random(seed)
    readable = [var for var in g.vars() if g.overwriter(var) is None and var.type.dtype.is_float]
    for var in rng.choices(readable, k=5):
        g.op("relu", {"X": [var]}, {"Out": [g.fresh("new", var.type)]})
    verify(g)


def test_a_var_has_one_producer():
    g = parse(UPDATE)
    with pytest.raises(ValueError, match="'a' has a producer: a = relu"):
        g.op("tanh", {"X": [find(g, "x")]}, {"Out": [find(g, "a")]})
    assert len(g) == 4


def test_names_are_declared_once():
    g = parse(UPDATE)
    for declare in (g.feed, g.param, g.var):
        with pytest.raises(ValueError, match="has a var called 'w' already"):
            declare("w", ROW)
    assert [g.fresh("w", ROW).name for _ in range(3)] == ["w.1", "w.2", "w.3"]
    assert g.fresh("new", ROW).name == "new"


def test_versions():
    g = Graph()
    x, h, w = g.feed("x", ROW), g.var("h", ROW), g.param("w", ROW)
    plain, kept = (
        g.next_version(h, ROW, same_storage=False),
        g.next_version(w, ROW, same_storage=True),
    )
    assert (plain.label, plain.role, plain.overwrites) == ("h#1", "temp", None)
    assert (kept.label, kept.role, kept.overwrites) == ("w#1", "param", w)
    assert g.next_version(w, ROW, same_storage=True).overwrites is kept
    assert g.next_version(x, ROW, same_storage=False).role == "temp"
    assert g.feeds() == [x]
    assert g.params() == [w]


def test_an_op_is_checked_at_birth():
    g = parse(UPDATE)
    x = find(g, "x")
    with pytest.raises(UnknownOp, match="reluu"):
        g.op("reluu", {"X": [x]}, {})
    with pytest.raises(BadAttribute, match="'scale' is str"):
        g.op("scale", {"X": [x]}, {}, {"scale": "two"})
    assert same(g, parse(UPDATE))


# ---- removing ----


def test_removing_keeps_names_for_new_producers():
    g = parse(UPDATE)
    first, a = g.ops()[0], find(g, "a")
    g.remove(first)
    assert (g.producer(a), a in g, first in g) == (None, True, False)
    new = g.op("tanh", {"X": [find(g, "x")]}, {"Out": [a]})
    assert (g.producer(a), g.ops()[0]) == (new, new)
    verify(g)


def test_sweeping_drops_what_nobody_needs():
    g = parse(UPDATE)
    g.var("idle", ROW)
    g.feed("unused", ROW)
    assert {var.name for var in g.sweep()} == {"idle"}
    assert find(g, "unused") in g
    g.remove(*g.ops())
    assert {var.label for var in g.sweep()} >= {"a", "b", "w", "w#1"}
    assert [var.label for var in g.vars()] == ["x", "y", "unused"]
    assert set(g.nx) == set(g.vars())


@given(graphs())
def test_sweeping_a_whole_graph_drops_nothing(g: Graph):
    text = show(g)
    assert g.sweep() == []
    assert show(g) == text


@given(graphs(labels=False))
def test_removing_all_leaves_nothing_behind(g: Graph):
    g.remove(*g.ops())
    g.results = []
    g.sweep()
    assert g.vars() == g.feeds()
    assert set(g.nx) == set(g.feeds())
    assert len(g) == 0


# ---- order ----


@given(graphs(labels=False), st.integers(0, 2**32))
def test_any_order_that_waits_is_valid(g: Graph, seed: int):
    waits = nx.DiGraph((before, op) for op in g.ops() for before in g.predecessors(op))
    waits.add_nodes_from(g.ops())
    rank = {op: index for index, op in enumerate(random.Random(seed).sample(g.ops(), len(g)))}
    order = list(nx.lexicographical_topological_sort(waits, rank.__getitem__))
    g.reorder(order)
    assert g.ops() == order
    assert [op.position for op in order] == [(index,) for index in range(len(order))]
    verify(g)


def test_an_order_has_every_op_once():
    g = parse(UPDATE)
    ops = g.ops()
    for wrong in (ops[:-1], [*ops, ops[0]], [*ops[:-1], ops[0]], [*ops, parse(UPDATE).ops()[0]]):
        with pytest.raises(ValueError, match="exactly once"):
            g.reorder(wrong)
    assert g.ops() == ops


def test_adding_continues_after_a_new_order():
    g = parse(UPDATE)
    a = find(g, "a")
    relu(g, a, "new")
    g.reorder(g.ops())
    new = relu(g, a, "new")
    assert g.ops().index(new) == 1
    assert [op.position for op in g.ops()][:2] == [(0,), (0, 5)]
    verify(g)


def test_growing_takes_a_constant_for_each_op():
    g = Graph()
    x = g.feed("x", ROW)
    start = time.process_time()
    for index in range(10_000):
        x = g.op("relu", {"X": [x]}, {"Out": [g.var(f"v{index}", ROW)]}, last=True)["Out"]
    assert g.ops()[-1] is g.producer(x)
    assert time.process_time() - start < 5
