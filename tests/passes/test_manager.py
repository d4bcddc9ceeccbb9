"""The contract of passes: a bad order is refused, a broken graph is caught, labels are wiped."""

import pytest

from compiler import interpret
from compiler.errors import PassOrderError, VerifyError
from compiler.ir.text.printer import parse
from compiler.ir.types import DType, TensorType
from compiler.passes import observers
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.manager import check_order, run_passes
from compiler.passes.observers import Guard, Recorder, Timer
from compiler.passes.pipeline import OPTIONAL, named

GRAPH = """
graph main {
  feed x: f32[N, 4]
  (Out=a: f32[N, 4]) = relu(X=x)
  (Out=b: f32[N, 4]) = tanh(X=a)
  return b
}
"""


def test_the_whole_pipeline_keeps_its_own_contract():
    check_order([pass_() for pass_ in OPTIONAL])


def test_pass_order_is_checked_before_running():
    graph = parse(GRAPH)
    with pytest.raises(PassOrderError, match=r"pass 'reuse_memory' requires ORDERED") as caught:
        run_passes(graph, named(["fuse_pointwise", "reuse_memory"]), Context())
    assert "run a pass that establishes ORDERED before it" in str(caught.value)
    assert all(op.kernel is None for op in graph.ops())


def test_pass_order_error_names_the_invalidating_pass():
    with pytest.raises(
        PassOrderError, match="pass 'fuse_pointwise' invalidates ORDERED: run it earlier"
    ):
        check_order(named(["schedule", "fuse_pointwise", "reuse_memory"]))


def missing_in(passes):
    """The first pass of an order that lacks a fact, and the fact, by another implementation; None if none."""
    known = set()
    for pass_ in passes:
        if pass_.requires - known:
            return pass_.name, min(fact.name for fact in pass_.requires - known)
        known = (known - pass_.invalidates) | pass_.establishes
    return None


@pytest.mark.parametrize("last", [pass_.name for pass_ in OPTIONAL])
def test_every_wrong_order_of_three_is_rejected_for_the_fact_that_is_missing(last):
    names = [pass_.name for pass_ in OPTIONAL]
    for order in ([first, second, last] for first in names for second in names):
        wrong = missing_in(named(order))
        if wrong is None:
            check_order(named(order))
            continue
        with pytest.raises(PassOrderError, match=f"^pass {wrong[0]!r} requires {wrong[1]} \\("):
            check_order(named(order))


class _Breaks(Pass):
    """Takes a producer away."""

    name = "breaks"

    def run(self, g, ctx):
        g.remove(g.ops()[0])


def test_a_pass_that_breaks_the_graph_is_named():
    with pytest.raises(VerifyError) as caught:
        run_passes(parse(GRAPH), [_Breaks()], Context())
    assert caught.value.__notes__ == ["in pass 'breaks'"]


CHAIN = """
graph main {
  feed x: f32[3, 4]
  param w: f32[3, 4]
  (Out=a: f32[3, 4]) = relu(X=x)
  (Out=b: f32[3, 4]) = tanh(X=a)
  (Out=c: f32[3, 4]) = exp(X=b)
  (Out=w#1: f32[3, 4] over w) = elementwise_add(X=w, Y=c)
  return c, w#1
}
"""


def _moves_the_first_behind(g):
    relu = g.ops()[0]
    g.remove(relu)
    g.op("relu", relu.inputs, relu.outputs, last=True)


def _reads_what_comes_later(g):
    relu, _, exp, _ = g.ops()
    g.rewire(relu, relu["X"], exp["Out"])


def _reads_what_is_overwritten(g):
    tanh = g.ops()[1]
    g.remove(tanh)
    late = g.op("tanh", {"X": [g.find("w")]}, tanh.outputs, last=True)
    g.replace_uses(late["Out"], g.find("a"))


def _retypes(g):
    g.retype(g.find("b"), TensorType(DType.FP32, (3, 5)))


def _retypes_state(g):
    g.retype(g.find("w"), TensorType(DType.FP32, (3, 5)))


def _turns_around(g):
    g.reorder(reversed(g.ops()))


def _takes_a_producer(g):
    g.remove(g.ops()[1])


def _adds_an_op_without_slots(g):
    g.op("relu", {}, {"Out": [g.var("d", g.find("a").type)]})


def _writes_a_feed(g):
    g.op("relu", {"X": [g.find("a")]}, {"Out": [g.find("x")]})


def _returns_what_is_overwritten(g):
    g.results = [*g.results, g.find("w")]
    g.retype(g.find("c"), g.find("c").type)


def _edits_past_the_graph(g):
    g.ops()[1].inputs["X"] = [g.find("c")]


@pytest.mark.parametrize(
    "edit, rule",
    [
        (_moves_the_first_behind, "order"),
        (_reads_what_comes_later, "order"),
        (_reads_what_is_overwritten, "order"),
        (_retypes, "types"),
        (_retypes_state, "storage"),
        (_turns_around, "order"),
        (_takes_a_producer, "producers"),
        (_adds_an_op_without_slots, "slots"),
        (_writes_a_feed, "producers"),
        (_returns_what_is_overwritten, "storage"),
    ],
)
def test_what_a_pass_breaks_is_found_after_it(edit, rule):
    graph, breaks = parse(CHAIN), _Idle()
    breaks.name, breaks.run = "edits", lambda g, ctx: edit(g)
    with pytest.raises(VerifyError, match=f"^{rule}: ") as caught:
        run_passes(graph, [_Idle(), breaks, _Idle()], Context(), is_converted=True)
    assert caught.value.__notes__ == ["in pass 'edits'"]


def test_what_a_pass_changes_past_the_graph_is_found_at_the_end():
    graph, edits = parse(CHAIN), _Idle()
    edits.run = lambda g, ctx: _edits_past_the_graph(g)
    with pytest.raises(VerifyError, match=r"^order: ops depend on each other in a cycle") as caught:
        run_passes(graph, [edits], Context())
    assert caught.value.__notes__[0].startswith("after all passes: one of them changed this")


class _ClaimsTooMuch(Pass):
    """Assigns both vars one buffer though they are live at once, and claims success."""

    name = "claims"
    establishes = frozenset({Fact.STORED})

    def run(self, g, ctx):
        for var in g.vars():
            if var.role == "temp":
                var.slot = 0


def test_false_facts_are_found_after_their_pass():
    text = GRAPH.replace("return b", "return b, a")
    with pytest.raises(VerifyError) as caught:
        run_passes(parse(text), [_ClaimsTooMuch()], Context())
    assert caught.value.__notes__ == ["in pass 'claims'"]


class _MovesANumber(Pass):
    """tanh becomes relu, which is valid and wrong."""

    name = "moves"

    def run(self, g, ctx):
        tanh = g.ops()[-1]
        g.remove(tanh)
        g.op("relu", tanh.inputs, tanh.outputs)


def test_guard_stops_at_the_pass_that_moves_a_number():
    with pytest.raises(VerifyError, match=r"pass 'moves' changed 'b' by up to"):
        run_passes(parse(GRAPH), [_MovesANumber()], Context(), [Guard()])


class _Idle(Pass):
    """Changes nothing."""

    name = "idle"

    def run(self, g, ctx):
        pass


def test_guard_interprets_an_unchanged_graph_once(monkeypatch):
    runs = []
    monkeypatch.setattr(
        observers, "run", lambda *given: runs.append(given) or interpret.run(*given)
    )
    run_passes(parse(GRAPH), [_Idle(), _Idle()], Context(), [Guard()])
    assert len(runs) == 1


def test_losing_a_fact_wipes_its_labels():
    graph = parse(GRAPH)
    run_passes(graph, named(["fuse_pointwise", "schedule", "reuse_memory"]), Context())
    assert {op.kernel for op in graph.ops()} == {0}
    run_passes(graph, named(["eliminate_dead"]), Context())
    assert {var.slot for var in graph.vars()} == {None}
    assert {op.kernel for op in graph.ops()} == {0}


def test_observers_see_every_pass():
    timer, recorder = Timer(), Recorder()
    passes = named(["eliminate_dead", "fuse_pointwise", "schedule"])
    run_passes(parse(GRAPH), passes, Context(), [timer, recorder])
    assert list(timer.milliseconds) == ["eliminate_dead", "fuse_pointwise", "schedule"]
    stages = recorder.stages
    assert [stage.name for stage in stages] == ["start", *timer.milliseconds]
    assert [stage.kernels for stage in stages] == [2, 2, 1, 1]
    assert ["@k0" in stage.text for stage in stages] == [False, False, True, True]
    assert [stage.milliseconds for stage in stages[1:]] == list(timer.milliseconds.values())


def test_an_unknown_pass_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown pass 'fuse'; known passes: resolve_sizes"):
        named(["fuse"])
