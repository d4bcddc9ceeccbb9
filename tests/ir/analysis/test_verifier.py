"""The rules of graphs and of facts: random graphs satisfy them, and each is violated once on purpose.

`bad/*.ir` contain one fault each; the first line is the expected part of the message, and a second
one may name a fact to check. Faults that text cannot express are built here.
"""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import CompileError, VerifyError
from compiler.interpret import run
from compiler.ir.analysis import verifier
from compiler.ir.analysis.allocation import check_stored
from compiler.ir.analysis.liveness import InPlaceRules, kernels, lives
from compiler.ir.analysis.verifier import check_grouped, check_ordered, fusible_shape, verify
from compiler.ir.graph import Changes, Graph, Op
from compiler.ir.text.printer import parse, parse_program
from compiler.ir.types import DType, TensorType
from tests.ir.random_graphs import arrays, graphs, random_graph

BAD = sorted((Path(__file__).parents[1] / "bad").glob("*.ir"))
ROW = TensorType(DType.FP32, (3, 4))


# ---- sound graphs ----


@given(graphs(labels=False))
def test_random_graphs_are_valid(g: Graph):
    verify(g)


@given(st.integers(0, 2**32), st.integers(0, 12))
def test_labelled_graphs_hold_all_facts(seed: int, steps: int):
    g = random_graph(random.Random(seed), steps, labels=True)
    verify(g)
    check_grouped(g)
    check_ordered(g)
    check_stored(g)


@given(st.integers(0, 2**32), st.integers(0, 12))
def test_slots_that_hold_the_fact_keep_the_numbers(seed: int, steps: int):
    g = random_graph(random.Random(seed), steps, labels=True)
    stored, state = numbers(g)
    for var in g.vars():
        var.slot = None
    alone, kept = numbers(g)
    for a, b in zip([*stored, *state.values()], [*alone, *kept.values()], strict=True):
        assert np.isfinite(a.astype(float)).all()
        np.testing.assert_array_equal(a, b)


@given(st.integers(0, 2**32), st.integers(2, 12), st.integers(1, 3))
def test_verifying_what_changed_finds_what_verifying_everything_finds(
    seed: int, steps: int, edits: int
):
    rng = random.Random(seed)
    g = random_graph(rng, steps)
    g.changed = Changes()
    for _ in range(edits):
        _edit(rng, g)
    assert _is_valid(g, g.changed) == _is_valid(g)


def _is_valid(g: Graph, changed: Changes | None = None) -> bool:
    try:
        verify(g, changed)
    except VerifyError:
        return False
    return True


def _edit(rng: random.Random, g: Graph) -> None:
    """One edit, which may make the graph invalid."""
    ops, edit = g.ops(), rng.randrange(6)
    if not ops:
        return
    op = rng.choice(ops)
    similar = [var for var in g.vars() if op.reads() and var.type == op.reads()[0].type]
    match edit:
        case 0:
            g.remove(op)
        case 1 if similar:
            g.rewire(op, op.reads()[0], rng.choice(similar))
        case 2:
            g.reorder(rng.sample(ops, len(ops)))
        case 3:
            g.remove(op)
            place = () if rng.random() < 0.3 else rng.choice(ops).position
            g.op(op.kind, op.inputs, op.outputs, op.attrs, body=op.body, place=place)
        case 4:
            var = rng.choice(g.vars())
            g.retype(var, rng.choice(g.vars()).type)
        case _:
            g.next_version(rng.choice(g.vars()), ROW, same_storage=rng.random() < 0.5)
            g.sweep()


def test_an_edit_of_a_long_graph_is_verified_alone(monkeypatch: pytest.MonkeyPatch):
    checked = list[object]()
    for name in ("_check_types", "_check_producer", "_dependencies"):
        check = getattr(verifier, name)
        monkeypatch.setattr(
            verifier, name, lambda *args, check=check: checked.append(check) or check(*args)
        )
    counts = list[int]()
    for length in (20, 40):
        g = Graph()
        var = g.feed("x", ROW)
        for n in range(length):
            following = g.var(f"v{n}", ROW)
            g.op("relu", {"X": [var]}, {"Out": [following]}, last=True)
            var = following
        g.results = [var]
        g.changed = Changes()
        middle = g.ops()[length // 2]
        g.replace(middle, "tanh", middle.inputs, middle.outputs, {})
        checked.clear()
        verify(g, g.changed)
        counts.append(len(checked))
    assert counts[0] == counts[1] == 5  # the op, its two vars, its own place and its reader's


def numbers(g: Graph):
    """What a graph returns, and the state it leaves."""
    state = arrays(g.params(), 1)
    return run(g, arrays(g.feeds(), 0), state), state


# ---- faults ----


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_fault_is_named(path: Path):
    first, second, *_ = text = path.read_text(encoding="utf-8").split("\n")
    fact = {"// check: grouped": check_grouped, "// check: stored": check_stored}.get(second)
    with pytest.raises(CompileError) as caught:
        check("\n".join(text), fact)
    notes = getattr(caught.value, "__notes__", [])
    assert first.removeprefix("// expect: ") in "\n".join([str(caught.value), *notes])


def check(text: str, fact) -> None:
    if "\nprogram" in text:
        parse_program(text)
        return
    g = parse(text)
    verify(g)
    if fact is not None:
        fact(g)


def test_errors_carry_the_op_and_the_users_line():
    text = "graph main {\n  feed x: f32[3]\n  (Out=y: f32[4]) = relu(X=x)  // train.py:7\n}\n"
    with pytest.raises(VerifyError) as caught:
        verify(parse(text))
    error = caught.value
    assert (error.op, error.source) == ("(Out=y) = relu(X=x)", "train.py:7")
    assert str(error).splitlines()[1:] == ["  op:   (Out=y) = relu(X=x)", "  line: train.py:7"]


def small() -> tuple[Graph, Op]:
    g = Graph()
    x = g.feed("x", ROW)
    op = g.op("relu", {"X": [x]}, {"Out": [g.var("y", ROW)]}, last=True)
    g.results = [op["Out"]]
    return g, op


def broken(g: Graph, message: str, check=verify) -> None:
    with pytest.raises(VerifyError, match=message):
        check(g)


def test_var_of_another_graph():
    g, op = small()
    op.inputs["X"] = [Graph().feed("x", ROW)]
    broken(g, "vars: 'x' is not a var of graph 'main'")


def test_result_of_another_graph():
    g, _ = small()
    g.results = [Graph().feed("x", ROW)]
    broken(g, "results: 'x' is not a var of graph 'main'")


def test_storage_of_another_graph():
    g, op = small()
    op["Out"].overwrites = Graph().feed("x", ROW)
    broken(g, "storage: 'y' overwrites 'x', which is not a var of graph 'main'")


def test_two_producers():
    g, op = small()
    other = g.op("tanh", {"X": [g.find("x")]}, {"Out": [g.var("z", ROW)]}, last=True)
    g.nx.add_edge(other, op["Out"])
    broken(g, "producers: 'y' has 2 producers")


def test_one_output_written_twice_by_one_op():
    g = Graph()
    x, flag, y = g.feed("x", ROW), g.feed("c", TensorType(DType.BOOL, (1,))), g.var("y", ROW)
    body = parse("graph b {\n feed x: f32[3, 4]\n return x, x\n}")
    g.op("if", {"Cond": [flag], "Captured": [x]}, {"Written": [y, y]}, body=body)
    broken(g, "producers: 'y' is written by one op 2 times")


def test_slots_and_attributes_that_were_edited():
    g, op = small()
    op.outputs["Other"] = op.outputs.pop("Out")
    broken(g, "slots: Output Out not found: relu needs it")
    g, op = small()
    op.attrs["no_such"] = 1
    broken(g, "slots: relu has no attribute 'no_such'")


def test_positions_must_count_up():
    g, op = small()
    check_ordered(g)
    g.op("tanh", {"X": [op["Out"]]}, {"Out": [g.var("z", ROW)]})
    broken(g, r"ORDERED: op 1 has position \(0, 1\)", check_ordered)
    g.reorder(g.ops())
    check_ordered(g)


# ---- lives ----

CHAIN = """\
graph main {
  feed x: f32[3, 4]
  feed c: bool[1]
  (Out=a: f32[3, 4]) = relu(X=x)
  (Out=b: f32[3, 4]) = relu(X=a) @k1
  (Out=d: f32[3, 4]) = tanh(X=b) @k1
  (Out=e: f32[3, 4]) = elementwise_add(X=d, Y=a)
  (Out=unread: f32[3, 4]) = abs(X=x)
  (Written=[e#1: f32[3, 4] over e]) = if(Cond=[c], Captured=[e]) graph b {
    feed e: f32[3, 4]
    (Out=e#1: f32[3, 4]) = relu(X=e)
    return e#1
  }
  return d, e#1
}
"""


def test_lives_run_from_maker_to_last_reader():
    g = parse(CHAIN)
    assert [[op.kind for op in ops] for ops in kernels(g)] == [
        ["relu"], ["relu", "tanh"], ["elementwise_add"], ["abs"], ["if"],
    ]  # fmt: skip
    assert {var.label: life for var, life in lives(g).items()} == {
        "a": (0, 3),
        "d": (1, 6),
        "e": (2, 5),
        "unread": (3, 4),
        "e#1": (4, 6),
    }


def test_a_var_whose_shape_alone_is_read_does_not_live_for_it():
    g = parse(
        "graph main {\n feed x: f32[3, 4]\n (Out=a: f32[3, 4]) = relu(X=x)\n"
        " (Out=y: f32[3, 4]) = tanh(X=a)\n"
        " (X@GRAD=d: f32[3, 4]) = elementwise_add_grad(Out@GRAD=y, X=a, Y=a)\n}"
    )
    assert lives(g)[g.find("a")] == (0, 2)
    assert lives(g)[g.find("y")] == (1, 3)


def test_taking_over_memory():
    def op(line: str) -> Op:
        head = "graph main {\n feed a: f32[3, 4]\n feed w: f32[4, 4]\n feed r: f32[1]\n"
        return parse(f"{head} var b: f32[3, 4]\n var i: f32[3, 4]\n {line}\n}}").ops()[0]

    relu = op("(Out=b) = relu(X=a)")
    assert InPlaceRules([relu]).allow(relu["X"], relu["Out"])
    mul = op("(Out=b) = mul(X=a, Y=w)")
    assert not InPlaceRules([mul]).allow(mul["X"], mul["Out"])
    spread = op("(Out=b) = elementwise_add(X=a, Y=r)")
    assert InPlaceRules([spread]).allow(spread["X"], spread["Out"])
    assert not InPlaceRules([spread]).allow(spread["Y"], spread["Out"])
    view = op("(Out=b, XShape=i) = reshape2(X=a) {'shape': [3, 4]}")
    declared = bool(view.defn.slots["Out"].inplace)
    assert InPlaceRules([view]).allow(view["X"], view["Out"]) == declared


def test_only_whole_pointwise_ops_fuse():
    def shape(line: str):
        head = "graph main {\n feed x: f32[N, 4]\n feed u: f32[?, 4]\n feed b: f32[4]\n"
        return fusible_shape(parse(f"{head} {line}\n}}").ops()[0])

    assert str(shape("(Out=y: f32[N, 4]) = elementwise_add(X=x, Y=b)")) == "(N, 4)"
    assert shape("(Out=y: f32[N, 4]) = softmax(X=x)") is None
    assert shape("(Out=y: f32[?, 4]) = relu(X=u)") is None
    assert shape("(Out=y: f32[N, 4]) = elementwise_sub(X=u, Y=x)") is None
    grads = "(X@GRAD=y: f32[N, 4], Y@GRAD=z: f32[4]) = elementwise_add_grad"
    assert shape(f"{grads}(Out@GRAD=x, X=x, Y=b)") is None
    whole = "(X@GRAD=y: f32[N, 4]) = elementwise_add_grad(Out@GRAD=x, X=x, Y=b)"
    assert str(shape(whole)) == "(N, 4)"
