"""What the pages name is there: files, packages, passes, tests; their code blocks: test_code_blocks."""

import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from compiler.ir.graph import Graph
from compiler.ir.opdef import Pointwise, attr, find, reads, writes
from compiler.ir.text.parser import parse
from compiler.ir.text.printer import show
from compiler.ops.math.activation import Unary
from compiler.passes import Context, Fact, Pass
from compiler.passes.pipeline import PASSES as PIPELINE

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RULES = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PASSES = (ROOT / "docs" / "passes.md").read_text(encoding="utf-8")


def test_index_lists_every_page_once() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^([\w/]+)$", index, re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(
        str(page.with_suffix("")) for page in pages if str(page) != "index.md"
    )


def test_commands_are_makefile_targets() -> None:
    prose = re.sub(r"(?s)```python.*?```", "", README)
    named = set(re.findall(r"\bmake ([a-z]+)\b", prose))
    in_rules = set(re.findall(r"^\| `make ([a-z]+)`", RULES, re.MULTILINE))
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {"demo", "test"} <= named | in_rules <= set(targets)
    assert {"test", "check"} <= in_rules


PACKAGES = ("compiler", "runtime", "fluid", "fleet")

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "bench/README.md",
    *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    path = ROOT / page
    prose = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", prose)
    assert [link for link in links if not (path.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and the site name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {word.replace(" ", "-") for word in words}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_headings(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", path.read_text("utf-8"))
    assert [
        link for link in links
        if link[1] not in anchors(path.parent / link[0] if link[0] else path)
    ] == []  # fmt: skip


def missing_paths(page: str) -> list[str]:
    """The paths in backquotes of a page that are neither at the root nor below its folder."""
    prose = re.sub(r"^```.*?^```", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S)
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|ll|md|toml))`", prose)
    bases = [ROOT, ROOT / "compiler", ROOT / "tests", (ROOT / page).parent]
    known = [path for path in paths if any((base / path).exists() for base in bases)]
    return [path for path in paths if path not in known and "NAME" not in path]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/cookbook.md"])
def test_paths_in_pages_exist(page: str) -> None:
    assert missing_paths(page) == []


@pytest.mark.parametrize(("page", "kind"), [(RULES, "leaky_relu"), (ARCHITECTURE, "relu")])
def test_op_of_a_page_computes_what_the_op_of_its_name_does(page: str, kind: str) -> None:
    (source,) = re.findall(
        rf'^ *```python\n( *class \w+\(\w+, op="{kind}"\).*?)```', page, re.M | re.S
    )
    names = {"Unary": Unary, "Pointwise": Pointwise, "attr": attr, "reads": reads, "writes": writes}
    renamed = "from __future__ import annotations\n" + dedent(source).replace(
        f'op="{kind}"', f'op="page_{kind}"'
    )
    exec(compile(renamed, "page", "exec"), names)
    x = np.linspace(-2, 2, 9, dtype="float32")
    values = {"X": x, "Out": find(kind)({}).evaluate({"X": x})["Out"], "Out@GRAD": np.ones_like(x)}
    for suffix in ("", "_grad"):
        got = find(f"page_{kind}{suffix}")({}).evaluate(values)
        wanted = find(kind + suffix)({}).evaluate(values)
        assert got.keys() == wanted.keys()
        assert all(np.allclose(got[slot], wanted[slot]) for slot in got)


def test_pass_of_the_rules_removes_the_second_relu() -> None:
    (source,) = re.findall(r"^ *```python\n( *class DropSecondRelu.*?)```", RULES, re.M | re.S)
    names: dict[str, Any] = {"Pass": Pass, "Fact": Fact, "Graph": Graph, "Context": Context}
    exec(compile(dedent(source), "page", "exec"), names)
    head, tail = "graph main {\n  feed x: f32[4]\n", "  return y\n}"
    second = "  (Out=h: f32[4]) = relu(X=x)\n  (Out=y: f32[4]) = relu(X=h)\n"
    graph = parse(head + second + tail)
    names["DropSecondRelu"]().run(graph, Context())
    assert [(op.kind, op["X"].name, op["Out"].name) for op in graph.ops()] == [("relu", "x", "y")]


def test_pages_list_all_passes_in_order() -> None:
    names = [pass_.name for pass_ in PIPELINE]
    (order,) = re.findall(r"`(resolve_sizes → [^`]+)`", ARCHITECTURE)
    assert order.replace("\n", " ").split(" → ") == names
    table = PASSES.split("## What each pass does")[1]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(names)


def test_text_form_of_the_page_is_printed_as_it_is_parsed() -> None:
    (text,) = re.findall(r"^```\n(graph main .*?)^```", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    assert show(parse(text)) == text


def test_each_threat_has_a_test() -> None:
    """Paths of tests are checked with those of all pages."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|.*\|$", page.split("## Threats")[1].split("## ")[0], re.MULTILINE)[2:]
    cited = [re.findall(r"`([^`]+)`", row.split("|")[-2]) for row in rows]
    assert [row for row, tests in zip(rows, cited, strict=True) if not tests] == []
    tests = "".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)", tests, re.MULTILINE))
    names = [name for names in cited for name in names if not name.startswith("tests/")]
    assert names
    assert [name for name in names if name not in defined] == []


def test_references_to_sections_name_headings() -> None:
    page = (ROOT / "docs" / "reference_behaviour.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    cited = [
        f"{file.relative_to(ROOT)}: {section}"
        for top in PACKAGES
        for file in (ROOT / top).rglob("*.py")
        for section in re.findall(
            r'docs/reference_behaviour\.md,\s+"([^"]+)"', file.read_text(encoding="utf-8")
        )
    ]
    assert cited
    assert [place for place in cited if place.partition(": ")[2] not in headings] == []


def test_the_map_of_the_architecture_is_short_and_names_every_package_of_the_compiler() -> None:
    (tree,) = re.findall(r"^## 4\..*?^```\n(.*?)^```", ARCHITECTURE, re.M | re.S)
    assert len(tree.splitlines()) <= 40
    folders = [
        f.parent for top in ("compiler", "runtime") for f in ROOT.glob(f"{top}/*/__init__.py")
    ]
    assert {folder.name for folder in folders} - set(re.findall(r"(\w+)/", tree)) == set()


@pytest.mark.parametrize("top", ["compiler", "fluid"])
def test_a_package_has_at_most_24_modules(top: str) -> None:
    sizes = {folder: len(list(folder.glob("*.py"))) for folder in (ROOT / top).rglob("*")}
    ops = ROOT / "compiler" / "ops"
    assert {f: n for f, n in sizes.items() if n > 24 and ops not in f.parents} == {}
