"""The page: self-contained, deterministic, and harmless for any content of a model."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import compiler
from compiler.codegen.module import Module
from compiler.debugging.explanation import explain, study_graph
from compiler.errors import CompileError
from compiler.ir.text.parser import parse
from compiler.options import Options
from compiler.passes.pipeline import pipeline
from compiler.report.memory import Bar, live_bytes, size_text
from compiler.report.user_lines import Sources

ROOT = Path(__file__).resolve().parents[2]
EVIL = "</script><script>document.title='caught'</script><img src=x onerror=alert(1)>"
FOREIGN = r"https?://|url\(|@import|\ssrc=|fetch\(|innerHTML|\beval\("
GRAPH = """\
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 4]
  (Out=h: f32[N, 4]) = mul(X=x, Y=w)  // train.py:2
  (Out=y: f32[N, 4]) = scale(X=h) {'scale': 2.0}  // train.py:3
  (Out=z: f32[N, 4]) = relu(X=y)  // train.py:3
  (Out=idle: f32[N, 4]) = tanh(X=h)
  return z
}
"""


def seen(text=GRAPH, **more):
    return study_graph("a <b> & c", parse(text), {"N": 8}, **more)


APART = Options(disable=frozenset({"fuse_epilogue"}))
"""What leaves a product in a kernel of its own."""


class Page(HTMLParser):
    """What a page is made of: its elements, their attributes, its data, its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[tuple[str, str], list[str | None]] = {}
        self.raw: dict[str, str] = {}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.setdefault((tag, name), []).append(value)
        self._inside = dict(attrs).get("id") or tag

    def handle_data(self, data):
        self.raw[self._inside] = self.raw.get(self._inside, "") + data

    def handle_endtag(self, tag):
        self._inside = ""

    @property
    def data(self):
        return json.loads(self.raw["data"])


def test_a_page_needs_nothing_from_elsewhere_and_lets_no_other_script_run():
    text = seen().html()
    page = Page(text)
    assert not {"link", "img", "iframe", "base", "object", "form"} & set(page.tags)
    assert not re.search(FOREIGN, text.replace(page.raw["data"], ""))
    policy = next(value for value in page.attributes["meta", "content"] if "default-src" in value)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(page.raw[tag].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert page.tags.count("script") == 3


def test_a_page_is_the_same_every_time_but_for_the_times():
    one, two = (re.sub(r'id="times">[^<]*<', "", seen().html()) for _ in range(2))
    assert one == two


def test_a_page_does_not_depend_on_hash_seeds(tmp_path: Path):
    (tmp_path / "x.ir").write_text(GRAPH, encoding="utf-8")
    pages: set[str] = set()
    for seed in "12":
        page = tmp_path / f"{seed}.html"
        command = [sys.executable, "-m", "compiler", str(tmp_path / "x.ir"), "--html", str(page)]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        subprocess.run(command, check=True, env=environment)
        pages.add(re.sub(r'id="times">[^<]*<', "", page.read_text(encoding="utf-8")))
    assert len(pages) == 1


def test_names_that_are_markup_are_only_text():
    name = json.dumps(EVIL)
    text = GRAPH.replace("Out=h:", f"Out={name}:").replace("X=h", f"X={name}")
    created = study_graph(EVIL, parse(text.replace("train.py:2", json.dumps(EVIL))), {"N": 8})
    html = created.html({EVIL: EVIL})
    page = Page(html)
    assert page.tags == Page(seen().html()).tags
    assert "<img" not in html and "</script><script>" not in html
    assert EVIL in [row[0] for row in page.data["vars"]]
    assert page.data["facts"][0] == [EVIL, EVIL]


def test_the_data_report_what_each_pass_did():
    data = Page(seen(options=APART).html()).data
    stages = {stage["name"]: stage for stage in data["stages"]}
    assert list(stages) == ["start", *(pass_.name for pass_ in pipeline(APART))]
    assert stages["drop_unread"]["changes"] == "−1"
    assert stages["fuse_pointwise"]["kernelCount"] == stages["eliminate_dead"]["kernelCount"] - 1
    assert "lines" not in stages["fold_constants"]
    assert stages["start"]["bytes"] == 4 * 8 * 4 * 4
    kinds = {node[0] for node in data["nodes"]}
    assert kinds == {"feed", "mul", "scale", "relu", "tanh"}
    (bar,) = data["memory"]["bars"]
    assert bar[1:5] == [0, 128, 0, 3]
    assert [data["vars"][v][0] for v, _ in bar[5]] == ["h", "z"]


def test_every_kernel_has_its_lines():
    data = Page(seen(options=APART).html()).data
    lines = data["code"]["source"].splitlines()
    kernels = [lines[first:stop] for first, stop in data["code"]["kernels"]]
    assert kernels[0][0].strip() == "# h = mul(x, w)  train.py:2"
    assert [line.strip() for line in kernels[1][:2]] == [
        "# y = scale(h)  train.py:3",
        "# z = relu(y)  train.py:3",
    ]
    assert all(not line.lstrip().startswith("return") for line in kernels[1])


def test_users_lines_come_from_folders_that_were_named_and_nowhere_else(tmp_path: Path):
    (tmp_path / "train.py").write_text("import fluid\n  h = fc(x)\n\nsecret\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("secret\n", encoding="utf-8")
    lines = Sources([tmp_path / "none", tmp_path])
    assert lines.line("train.py:2") == "h = fc(x)"
    (tmp_path.parent / "other.py").write_text("secret\n", encoding="utf-8")
    (tmp_path / "link.py").symlink_to(tmp_path.parent / "other.py")
    named = ["train.py:9", "train.py:0", "notes.txt:1", f"{tmp_path.parent}/other.py:1"]
    named += ["../other.py:1", "link.py:1", "", "a\0b.py:1", ".py:1"]
    assert [lines.line(name) for name in named] == [""] * len(named)
    assert Sources([tmp_path.parent]).line(f"{tmp_path.name}/train.py:2") == "h = fc(x)"
    assert Sources().line("train.py:2") == ""
    data = Page(seen().html(sources=lines)).data
    assert ["train.py:2", "h = fc(x)"] in data["sources"]


def test_a_page_of_a_program_without_ops_is_a_page():
    data = Page(study_graph("empty", parse("graph main {\n}\n"), {}).html()).data
    assert data["nodes"] == [] and data["memory"] is None


# ---- explaining what was compiled before ----


def test_a_module_explains_itself_later():
    first = seen()
    again = explain(first.module, {"N": 8}, title=first.title)
    assert again.html() == first.html()
    assert str(again).splitlines()[2:4] == str(first).splitlines()[2:4]


def test_a_module_that_was_edited_or_came_from_a_file_reports_it(tmp_path: Path):
    module = seen().module
    module.save(tmp_path / "main.py")
    with pytest.raises(CompileError, match="has no record of its compilation"):
        compiler.explain(Module.load(tmp_path / "main.py"))
    edited = Module(**{**vars(module), "source": module.source + "# edited\n"})
    with pytest.raises(CompileError, match="is not what its graph compiles to now"):
        compiler.explain(edited)


# ---- numbers ----


def test_live_bytes_are_those_of_all_bars_at_a_step():
    bars = [Bar("a", 0, 100, 0, 2), Bar("b", 100, 30, 1, 4)]
    assert live_bytes(bars) == [100, 130, 30, 30]
    assert live_bytes([]) == []


def test_sizes_read_well():
    assert [size_text(n) for n in (0, 1, 1023, 1024, 1536, 1 << 20, 3 << 40, 1 << 60)] == [
        "0 B", "1 B", "1023 B", "1 KiB", "1.5 KiB", "1 MiB", "3 TiB", "1.049e+06 TiB",
    ]  # fmt: skip
