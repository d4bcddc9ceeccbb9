"""DOT and the report: they say what they should, escape what they must, and need nothing else."""

import random
import re
from html.parser import HTMLParser

from hypothesis import given

from compiler.ir.diff import Diff, marked
from compiler.ir.dims import Dim
from compiler.ir.draw import Bar, Stage, dot, html, size_text
from compiler.ir.graph import Graph
from compiler.ir.text import parse, show
from tests.ir.random_graphs import graphs, random_graph

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


# ---- differences ----


def test_marked_shows_what_is_new_in_a_line():
    assert marked("(Out=h: f32[3])", "(Out=h: f32[3] @s0)") == (
        "(Out=h: f32[3])",
        "(Out=h: f32[3]<b> @s0</b>)",
    )
    assert marked("a", "a") == ("a", "a")
    assert marked("<a>", "<b>") == ("&lt;<b>a</b>&gt;", "&lt;<b>b</b>&gt;")
    assert marked("x x", "x") == ("x<b> x</b>", "x")
    assert marked("a < b", "(c, d)") == ("a &lt; b", "(c, d)")


def test_unchanged_lines_are_folded():
    before = [f"line {index}" for index in range(20)]
    after = [*before[:10], "new", *before[10:]]
    rows = list(Diff(before, after).rows())
    assert len(rows) == 7
    assert "8 lines unchanged" in rows[0]
    assert rows[3].count("new") == 1
    assert "8 lines unchanged" in rows[-1]
    assert (Diff(before, after).gone, Diff(before, after).come) == (0, 1)
    assert (Diff(before, before).gone, Diff(before, before).come) == (0, 0)


def test_lines_that_change_places_are_told_from_edited_ones():
    diff = Diff(["a", "b", "c", "d"], ["c", "a", "b", "e"])
    assert (diff.moved, diff.gone, diff.come) == (1, 1, 1)
    assert diff.changes == "−1 +1, 1 moved"
    rows = "".join(diff.rows())
    assert rows.count('<td class="moved">c</td>') == 2
    assert '<td class="gone"><b>d</b></td>' not in rows
    assert Diff(["a"], ["a"]).changes == ""


def test_a_line_says_once_where_it_comes_from():
    before = "  (Out=y) = relu(X=x) {'op_callstack': ['a.py:3']}  // a.py:3"
    after = "  (Out=y @s0) = relu(X=x) {'op_callstack': ['a.py:3']}  // a.py:3"
    (row,) = Diff([before], [after]).rows()
    assert "op_callstack" not in row
    assert row.count("<i>  // a.py:3</i>") == 2
    assert "<b> @s0</b>) = relu(X=x)<i>" in row


def test_a_lone_folded_line_is_one_line():
    assert "1 line unchanged" in next(Diff(["a", "b", "c", "d"], ["a", "b", "c", "e"]).rows())


# ---- the page ----


class Page(HTMLParser):
    """Collects what a page is made of, and checks that what is opened is closed."""

    VOID = ("meta", "col", "line", "polyline", "circle")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if self.open[-1:] != ["style"] else ""

    def all(self, tag: str, name: str) -> list[str | None]:
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]


def stages() -> list[Stage]:
    before = GRAPH.replace(" @k1 @numpy", "")
    readers = "'h' has <other> readers"
    refusals = (f"(Out=y) = relu(X=h): {readers}", f"(Out=z) = tanh(X=h): {readers}", "too late")
    return [
        Stage("fuse_pointwise", before, GRAPH, 1.5, 5, 5, refusals, Dim.named("N") * 64),
        Stage("eliminate_dead", GRAPH, GRAPH, 0.25, 5, 5, nbytes=2048),
        Stage("fold_constants", GRAPH, "graph main {\n}\n", 3.0, 5, 0),
    ]


BARS = (
    Bar("h", 0, 4096, 0, 3),
    Bar("y <1>", 4096, 1024, 1, 2),
    Bar("long name of a buffer", 4096, 64, 2, 3),
)


def test_page_shows_the_pipeline():
    summary = {"arena": "5 KiB", "a < b": "<i>"}
    page = Page(
        html(stages(), title="lenet <bn>", summary=summary, bars=BARS, source="x = 1  # one\n")
    )
    passes, ends = [stage.name for stage in stages()], ["memory", "graph", "source"]
    assert page.all("section", "id") == ["passes", *passes, *ends]
    links = ["passes", *ends, *passes]
    assert page.all("a", "href") == [f"#{name}" for name in links]
    for text in (
        "lenet <bn>", "a < b", "1.50", "64*N B", "2 KiB", "5 → 0", "−2 +2",
        "Declined (2 times): 'h' has <other> readers", "(Out=y) = relu(X=h)", "too late",
        "0.25 ms, nothing changed", "lines unchanged", "4.75", "all",
        "5 KiB of arena, 5 KiB alive at most", "y <1>: 1 KiB at 4096, steps 1 to 1",
        "peak: 5 KiB", "Alive at the peak, step 1:",
        "graph main {\n}", "x = 1", "# one",
    ):  # fmt: skip
        assert text in page.text, text
    assert len(page.all("rect", "x")) == 3


def test_page_needs_nothing_from_elsewhere():
    text = html(stages(), bars=BARS, source="import os")
    page = Page(text)
    assert not {tag for tag, _, _ in page.attributes} & {"script", "link", "img", "iframe"}
    assert not re.search(r"https?:|url\(|@import|src=", text)
    assert all(value.startswith("#") for value in page.all("a", "href"))
    assert "prefers-color-scheme: dark" in text


def test_source_has_line_numbers_and_copies_without_them():
    page = Page(html([], source="x = 1\n\ny = 2  # two\n"))
    assert page.text.count("3 lines") == 1
    assert "x = 1\n\ny = 2  # two\n" in page.text


def test_the_legend_lists_the_largest_buffers_of_the_peak():
    page = Page(html([], bars=[Bar(f"b{i}", 1024 * i, 1024, 0, 1 + i % 2) for i in range(14)]))
    assert "4 more, 4 KiB" in page.text
    assert "peak: 14 KiB" in page.text


def test_page_leaves_out_what_there_is_not():
    page = Page(html([]))
    assert "Memory" not in page.text
    assert "Generated source" not in page.text
    assert "Memory" not in Page(html(stages())).text


def test_page_is_the_same_every_time():
    g = random_graph(random.Random(3), 12, labels=True)
    stage = Stage("a", "", show(g), 1.0, 0, len(g))
    assert html([stage], bars=BARS) == html([stage], bars=BARS)


def test_buffers_lie_where_the_plan_says():
    page = Page(html([], bars=[Bar("a", 0, 100, 0, 1), Bar("b", 100, 300, 1, 4)]))
    x, y = ([float(v) for v in page.all("rect", name)] for name in ("x", "y"))
    width, height = ([float(v) for v in page.all("rect", name)] for name in ("width", "height"))
    assert x[1] == x[0] + width[0]
    assert abs(width[1] - 3 * width[0]) < 0.05
    assert abs(y[1] + height[1] - y[0]) < 0.05
    assert abs(height[1] - 3 * height[0]) < 0.05


def test_sizes_read_well():
    assert [size_text(n) for n in (0, 1, 1023, 1024, 1536, 1 << 20, 3 << 40, 1 << 60)] == [
        "0 B", "1 B", "1023 B", "1 KiB", "1.5 KiB", "1 MiB", "3 TiB", "1.049e+06 TiB",
    ]  # fmt: skip
