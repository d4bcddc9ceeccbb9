"""docs/cookbook.md: its code runs, and each task needs its two files alone."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.driver import compile_graph
from compiler.errors import CompileError, PassOrderError
from compiler.interpret import run
from compiler.ir.opdef import find
from compiler.ir.text.parser import parse
from compiler.options import Options
from compiler.passes import Context, Fact, Pass, register_pass
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import PASSES, pipeline
from compiler.passes.registry import insert_registered

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cookbook.md"


FILE = re.compile(r"`([\w/]+\.\w+)`:\n\n```\w+\n(.*?)```", re.DOTALL)
"""A block with the name of its file above it."""
CHANGES = re.compile(r"`([\w/]+\.\w+)`[^`]*:\n\n```diff\n(.*?)```", re.DOTALL)
"""The lines that a recipe adds to a file, each before the line that follows."""
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
TASKS = {"A pass": "merge_scales", "An op": "squareplus", "An optimizer": "lion"}
INTERPRETER = "tests/support/interpreter.py"
"""What tests/conftest.py imports."""
COPIED = ("compiler", "runtime", "fluid", "fleet", "tests/codegen", "tests/ops", "tests/passes")
JUDGES = (
    "tests/passes/test_golden.py", "tests/passes/test_manager.py", "tests/ops/test_every_op.py",
    "tests/ops/test_generated.py", "tests/ops/test_on_device.py",
)  # fmt: skip

HAS_KERNELS = all(map(importlib.util.find_spec, ("triton", "torch")))


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def tasks() -> dict[str, str]:
    """The recipes of the page by their headings."""
    _, *recipes = text().split("\n## ")
    return {title: body for title, _, body in (recipe.partition("\n") for recipe in recipes)}


def files(recipe: str) -> dict[str, str]:
    """The files that a recipe adds, by path."""
    return dict(FILE.findall(recipe))


def changed(path: Path, lines: str) -> str:
    """A file with the lines of a diff that start with `+`, each before the one that follows."""
    source = path.read_text(encoding="utf-8")
    for added, follows in re.findall(r"^\+(.*\n) (.*\n)", lines, re.MULTILINE):
        assert source.count(f"\n{follows}") == 1, follows
        source = source.replace(f"\n{follows}", f"\n{added}{follows}")
    return source


def blocks() -> list[str]:
    """The code that runs one after another, as in a script."""
    return [each for each in CODE.findall(text()) if "import Sample" not in each]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names of the page's classes."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in (block for block in blocks() if "\nclass " in block):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.mark.usefixtures("fresh_programs")
def test_the_code_of_the_page_runs() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks():
        exec(compile(block, str(PAGE), "exec"), names)
    assert len(blocks()) == 6


def test_each_task_touches_the_two_files_that_it_lists() -> None:
    assert [*tasks()] == [*TASKS]
    for title, recipe in tasks().items():
        listed = re.findall(r"^\| `(.*?)` \|", recipe, re.MULTILINE)
        assert [*files(recipe)] == listed, title
        assert len(listed) == 2, title


def test_the_files_of_the_page_are_all_that_the_project_needs(tmp_path: Path) -> None:
    for folder in COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for file in ("pyproject.toml", "conftest.py", "tests/conftest.py", INTERPRETER):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    for path, source in (file for recipe in tasks().values() for file in files(recipe).items()):
        assert not (tmp_path / path).exists(), path
        (tmp_path / path).write_text(source, encoding="utf-8")
    for path, lines in CHANGES.findall(text()):
        (tmp_path / path).write_text(changed(tmp_path / path, lines), encoding="utf-8")
    names = " or ".join((*TASKS.values(), "contract", "every_pass"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *JUDGES, "-k", names],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, timeout=300,
        capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    on_device = {"squareplus": "backward", "lion": "forward"} if HAS_KERNELS else {}
    for judged in (
        *(f"test_on_device.py::test_{way}[{op}] PASSED" for op, way in on_device.items()),
        "this_of_that[merge_scales] PASSED", "finite_differences[squareplus] PASSED",
        "test_generated.py::test_backward[squareplus] PASSED",
        "test_generated.py::test_forward[lion] PASSED",
    ):  # fmt: skip
        assert judged in done.stdout, done.stdout


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
    assert ["has a bias" in note.reason for note in context.missed] == [True]
    for got, want in zip(run(graph, feed, {}), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_gradient_of_the_op_is_the_slope(page: dict[str, Any]) -> None:
    x, h = np.linspace(-3, 3, 13), 1e-5
    op = find("squareplus")({})
    value = lambda at: op.evaluate({"X": at})["Out"]  # noqa: E731
    slope = (value(x + h) - value(x - h)) / (2 * h)
    created = find("squareplus_grad")({}).evaluate({"X": x, "Out@GRAD": np.ones_like(x)})
    np.testing.assert_allclose(next(iter(created.values())), slope, rtol=1e-6)


# ---- where passes stand ------------------------------------------------------------------------


class _Idle(Pass):
    """Does nothing."""

    def run(self, g: Any, ctx: Context) -> None:
        """Nothing."""


class _ReluBySign(Pass):
    """relu(x)  =  leaky_relu(x) of slope 0, as a new op."""

    name = "relu_by_sign"
    invalidates = frozenset(Fact)

    def run(self, g: Any, ctx: Context) -> None:
        """Rewrite every relu."""
        for op in [op for op in g.ops() if op.kind == "relu"]:
            g.remove(op)
            g.op("leaky_relu", dict(op.inputs), dict(op.outputs), {"alpha": 0.0})


def idle(name: str, needs: frozenset[Fact] = frozenset()) -> type[Pass]:
    return type(name, (_Idle,), {"name": name, "requires": needs})


def order(*names: str) -> list[str]:
    return [each.name for each in insert_registered(PASSES, names)]


def test_passes_stand_where_they_were_registered() -> None:
    register_pass(before="schedule")(idle("idle_a"))
    register_pass(after="schedule")(idle("idle_b"))
    register_pass(after="schedule")(idle("idle_c"))
    result = order("idle_a", "idle_b", "idle_c")
    place = result.index("schedule")
    assert result[place - 1 : place + 3] == ["idle_a", "schedule", "idle_b", "idle_c"]
    assert order() == [pass_.name for pass_ in PASSES]


def test_a_pass_runs_only_where_options_name_it() -> None:
    created = register_pass(after="fold_constants")(idle("idle_d"))
    on = [pass_.name for pass_ in pipeline(Options(passes=[created]))]
    assert on.index("idle_d") == on.index("fold_constants") + 1
    assert "idle_d" not in [pass_.name for pass_ in pipeline(Options())]
    off = Options(passes=["idle_d"], disable=frozenset({"idle_d"}))
    assert "idle_d" not in [pass_.name for pass_ in pipeline(off)]
    assert Options.from_env({"FLUID_PASSES": "idle_d"}) == Options(passes=[created])
    assert hash(Options(passes=[created])) == hash(Options(passes=["idle_d"]))


def test_a_pass_at_a_wrong_place_is_rejected_with_the_fact_it_misses() -> None:
    created = register_pass(before="schedule")(idle("idle_e", frozenset({Fact.STORED})))
    graph = parse("graph main {\n  feed x: f32[4]\n  (Out=y: f32[4]) = relu(X=x)\n  return y\n}")
    with pytest.raises(PassOrderError, match="pass 'idle_e' requires STORED"):
        run_passes(graph, pipeline(Options(passes=[created])), Context())


def test_ops_of_a_pass_after_placement_are_assigned_to_the_target() -> None:
    created = register_pass(before="fuse_pointwise")(_ReluBySign)
    text = """graph main {
      feed x: f32[4]
      (Out=a: f32[4]) = tanh(X=x)
      (Out=y: f32[4]) = relu(X=a)
      return y
    }"""
    compiled = compile_graph(parse(text), target="native", options=Options(passes=[created]))
    kinds = {op.kind: (op.target, op.kernel) for op in compiled.graph.ops()}
    assert kinds == {"tanh": ("native", 0), "leaky_relu": ("native", 0)}


def test_register_pass_errors() -> None:
    with pytest.raises(ValueError, match="pass exactly one of before and after"):
        register_pass()
    with pytest.raises(ValueError, match="has no name"):
        register_pass(after="schedule")(_Idle)
    register_pass(after="schedule")(idle("idle_f"))
    with pytest.raises(ValueError, match="pass 'idle_f' is already registered by idle_f"):
        register_pass(after="schedule")(type("other", (_Idle,), {"name": "idle_f"}))
    with pytest.raises(CompileError, match="no pass 'idle_g' is registered"):
        pipeline(Options(passes=["idle_g"]))
    with pytest.raises(ValueError, match="is anchored to unknown pass"):
        insert_registered(PASSES[:2], ["idle_f"])
