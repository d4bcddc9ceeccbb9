"""docs/cookbook.md: its code runs, each recipe is under a page, and the op's gradient is right."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.errors import CompileError, PassOrderError
from compiler.interpret import run
from compiler.ir.opdef import find
from compiler.ir.text.parser import parse
from compiler.options import Options
from compiler.passes import Context, Fact, Pass, register_pass
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import PASSES, pipeline
from compiler.passes.registry import with_added

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cookbook.md"
LINES = 60
"""What fits a page."""


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names of the page's classes."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in (each for each in blocks() if "\nclass " in each):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.mark.usefixtures("fresh_programs")
def test_the_code_of_the_page_runs() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks():
        exec(compile(block, str(PAGE), "exec"), names)
    assert len(blocks()) == 4


def test_each_recipe_is_under_a_page() -> None:
    _, *recipes = PAGE.read_text(encoding="utf-8").split("\n## ")
    assert [len(each.splitlines()) < LINES for each in recipes] == [True, True]


def test_the_pass_keeps_every_number(page: dict[str, Any]) -> None:
    graph = parse("""graph main {
      feed x: f32[N, 4]
      (Out=a: f32[N, 4]) = scale(X=x) {'scale': 2.0}
      (Out=b: f32[N, 4]) = scale(X=a) {'scale': 3.0}
      (Out=c: f32[N, 4]) = scale(X=b) {'bias': 1.0}
      return a, b, c
    }""")
    feed = {"x": np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)}
    wanted, context = run(graph, feed, {}), Context()
    run_passes(graph, [page["MergeScales"]()], context)
    assert [len(op.reads()) and op["X"].name for op in graph.ops()] == ["x", "x", "b"]
    assert ["a bias stands between" in each.reason for each in context.missed] == [True]
    for got, want in zip(run(graph, feed, {}), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_gradient_of_the_op_is_the_slope(page: dict[str, Any]) -> None:
    x, h = np.linspace(-3, 3, 13), 1e-5
    op = find("squareplus")({})
    value = lambda at: op.evaluate({"X": at})["Out"]  # noqa: E731
    slope = (value(x + h) - value(x - h)) / (2 * h)
    made = find("squareplus_grad")({}).evaluate({"X": x, "Out@GRAD": np.ones_like(x)})
    np.testing.assert_allclose(next(iter(made.values())), slope, rtol=1e-6)


# ---- where passes stand ------------------------------------------------------------------------


class _Idle(Pass):
    """Does nothing."""

    def run(self, g: Any, ctx: Context) -> None:
        """Nothing."""


def idle(name: str, needs: frozenset[Fact] = frozenset()) -> type[Pass]:
    return type(name, (_Idle,), {"name": name, "requires": needs})


def order(*names: str) -> list[str]:
    return [each.name for each in with_added(PASSES, names)]


def test_passes_stand_where_they_were_registered() -> None:
    register_pass(before="schedule")(idle("idle_a"))
    register_pass(after="schedule")(idle("idle_b"))
    register_pass(after="schedule")(idle("idle_c"))
    found = order("idle_a", "idle_b", "idle_c")
    place = found.index("schedule")
    assert found[place - 1 : place + 3] == ["idle_a", "schedule", "idle_b", "idle_c"]
    assert order() == [each.name for each in PASSES]


def test_a_pass_runs_only_where_options_name_it() -> None:
    made = register_pass(after="fold_constants")(idle("idle_d"))
    on = [each.name for each in pipeline(Options(passes=[made]))]
    assert on.index("idle_d") == on.index("fold_constants") + 1
    assert "idle_d" not in [each.name for each in pipeline(Options())]
    off = Options(passes=["idle_d"], disable=frozenset({"idle_d"}))
    assert "idle_d" not in [each.name for each in pipeline(off)]
    assert Options.from_env({"FLUID_PASSES": "idle_d"}) == Options(passes=[made])
    assert hash(Options(passes=[made])) == hash(Options(passes=["idle_d"]))


def test_a_pass_at_a_wrong_place_is_refused_with_the_fact_it_misses() -> None:
    made = register_pass(before="schedule")(idle("idle_e", frozenset({Fact.STORED})))
    graph = parse("graph main {\n  feed x: f32[4]\n  (Out=y: f32[4]) = relu(X=x)\n  return y\n}")
    with pytest.raises(PassOrderError, match="pass 'idle_e' needs STORED"):
        run_passes(graph, pipeline(Options(passes=[made])), Context())


def test_what_cannot_be_registered_is_said() -> None:
    with pytest.raises(ValueError, match="say before or after which pass"):
        register_pass()
    with pytest.raises(ValueError, match="needs a name"):
        register_pass(after="schedule")(_Idle)
    register_pass(after="schedule")(idle("idle_f"))
    with pytest.raises(ValueError, match="pass 'idle_f' is idle_f already"):
        register_pass(after="schedule")(type("other", (_Idle,), {"name": "idle_f"}))
    with pytest.raises(CompileError, match="no pass 'idle_g' is registered"):
        pipeline(Options(passes=["idle_g"]))
    with pytest.raises(ValueError, match="is not there"):
        with_added(PASSES[:2], ["idle_f"])
