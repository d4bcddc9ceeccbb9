"""The plan checker: every plan passes as it is, and no fault seeded into one gets past it."""

from dataclasses import replace
from itertools import combinations

import pytest

import fluid
from compiler import Options
from compiler.driver import compile_stages
from compiler.errors import PlanError
from compiler.freeze import freeze
from compiler.ir.analysis.liveness import lives
from compiler.ir.graph import Graph
from compiler.ir.text.parser import parse
from compiler.plan import Plan, PlannedValue, StorageKind
from compiler.plan_check import check_plan
from tests.support.nets import timed

CHAIN = """
graph main {
  feed x: f32[4, 4]
  param w: f32[4, 4]
  (Out=a: f32[4, 4] @s0) = mul(X=x, Y=w)
  (Out=b: f32[4, 4] @s1) = relu(X=a)
  (Out=c: f32[4, 4] @s2) = elementwise_add(X=a, Y=b)
  (Out=d: f32[4, 4] @s3) = mul(X=c, Y=b)
  return d, c
}
"""


def graph(text: str = CHAIN, **slots: int) -> Graph:
    """The graph of a text, with other slots for some of its vars."""
    g = parse(text)
    for var in g.vars():
        var.slot = slots.get(var.name, var.slot)
    return g


def moved(plan: Plan, label: str, **changes) -> Plan:
    """A plan in which one value is another, wherever it is read or written."""

    def new(value: PlannedValue) -> PlannedValue:
        return replace(value, **changes) if value.label == label else value

    def new_op(op):
        sides = [
            {slot: tuple(map(new, values)) for slot, values in side.items()}
            for side in (op.inputs, op.outputs)
        ]
        return replace(op, inputs=sides[0], outputs=sides[1])

    steps = tuple(replace(step, ops=tuple(map(new_op, step.ops))) for step in plan.steps)
    results, feeds = tuple(map(new, plan.results)), tuple(map(new, plan.feeds))
    return replace(plan, steps=steps, results=results, feeds=feeds)


def refused(plan: Plan) -> str:
    with pytest.raises(PlanError) as caught:
        check_plan(plan)
    return caught.value.message


def test_a_value_lost_to_another_is_reported_with_the_lives_of_both() -> None:
    with pytest.raises(PlanError) as caught:
        freeze(graph(b=0))
    assert caught.value.message == (
        "step 2 reads 'a', but 'b' occupies its memory since step 1; "
        "'a' is needed in steps 0 to 2, 'b' is needed in steps 1 to 3"
    )
    assert "c = elementwise_add(a, b)" in str(caught.value)


def test_memory_may_be_taken_over_at_the_last_use() -> None:
    freeze(graph(c=0))
    freeze(graph(d=0))


def test_a_product_may_not_write_over_what_it_still_reads() -> None:
    with pytest.raises(PlanError, match="step 3 writes 'd' over 'b', which it still reads"):
        freeze(graph(d=1))


def test_results_share_memory_with_nothing() -> None:
    plan = freeze(graph())
    home = next(value.home for value in plan.results if value.label == "c")
    assert refused(moved(plan, "d", home=home)).startswith("step 3 writes 'd' over 'c', which it")
    both = tuple(replace(value, place=StorageKind.FEED, home="x") for value in plan.results)
    assert refused(replace(plan, results=both)) == "'d' and 'c' are results that share memory"


def test_a_buffer_is_used_in_its_life_only() -> None:
    plan = freeze(graph())
    short = replace(plan.buffers[0], stop=2)
    wrong = replace(plan, buffers=(short, *plan.buffers[1:]))
    assert refused(wrong) == "step 2 uses 'a', whose buffer is live in steps 0 to 1"


def test_feeds_have_no_buffer() -> None:
    plan = freeze(graph())
    assert refused(moved(plan, "x", place=StorageKind.BUFFER, home=0)).startswith(
        "'x' is a feed, so"
    )


def test_unwritten_values_are_not_read() -> None:
    plan = freeze(graph())
    steps = plan.steps[1:]
    assert refused(replace(plan, steps=steps)) == "step 1 reads 'a', but nothing has written it"


def test_deleted_values_are_not_read() -> None:
    text = CHAIN.replace(" @s0", "").replace("  (Out=c", "  () = delete_var(X=a)\n  (Out=c", 1)
    with pytest.raises(PlanError, match="step 3 reads 'a', but it was deleted in step 2"):
        freeze(graph(text))


def optimised() -> Graph:
    """A training step after all passes."""
    recorded = timed.model(fluid, "digits_mlp")
    options = Options(disable=frozenset({"insert_deletes"}))
    feed = list(timed.draw("digits_mlp", timed.np.random.RandomState(0), 2))
    return compile_stages(
        recorded.main, feed=feed, fetch=[recorded.loss.name], options=options
    ).graph


def test_no_two_values_that_are_needed_at_once_can_share_memory() -> None:
    g = optimised()
    held = {var: life for var, life in lives(g).items() if var.slot is not None}
    alive = {var: life for var, life in held.items() if 0 not in var.type.shape}
    met = 0
    for one, other in combinations(alive, 2):
        (start, stop), (begin, end) = alive[one], alive[other]
        if one.slot == other.slot or not (start < end - 1 and begin < stop - 1):
            continue
        kept, other.slot = other.slot, one.slot
        with pytest.raises(PlanError):
            freeze(g)
        other.slot = kept
        met += 1
    assert met > 50
    freeze(g)


JOINED = """
graph main {
  feed x: f32[1]
  feed y: f32[1]
  (Out=a: f32[1] @s0) = tanh(X=x)
  (Out=b: f32[1] @s1) = tanh(X=y)
  (Out=c: f32[2] @s0) = concat(X=[a, b])
  (Out=d: f32[1] @s2) = relu(X=b)
  return c, d
}
"""


def test_a_part_that_is_in_the_whole_already_is_not_written_over() -> None:
    check_plan(freeze(parse(JOINED)))
