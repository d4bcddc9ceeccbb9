"""Changes: a relabelled or moved op is shown next to its old line, and nothing is lost."""

import random

from compiler.ir.text.parser import parse
from compiler.passes.observers import stage
from compiler.report.changes import Line, RowKind, compare, count, lines_of, text
from tests.ir.random_graphs import random_graph

GRAPH = """\
graph main {
  feed x: f32[N, 4]
  (Out=a: f32[N, 4]) = relu(X=x)
  (Out=b: f32[N, 4]) = tanh(X=a)
  (Out=c: f32[N, 4]) = abs(X=x)
  return b, c
}
"""


def changes(before, after):
    """What differs between two graphs, as (kind, line before, line after)."""
    old, new = (lines_of(stage(parse(each), "s")) for each in (before, after))
    rows = [row for row in compare(old, new) if row.change is not RowKind.SAME]
    pick = lambda lines, at: None if at is None else lines[at].text.strip()  # noqa: E731
    return [(row.change.name, pick(old, row.before), pick(new, row.after)) for row in rows]


def test_a_label_is_an_edit_of_its_own_line():
    result = changes(GRAPH, GRAPH.replace("relu(X=x)", "relu(X=x) @k0"))
    line = "(Out=a: f32[N, 4]) = relu(X=x)"
    assert result == [("EDITED", line, f"{line} @k0")]


def test_moves_differ_from_removals_and_additions():
    lines = GRAPH.splitlines(keepends=True)
    moved = "".join([*lines[:2], lines[4], *lines[2:4], *lines[5:]])
    assert [kind for kind, _, _ in changes(GRAPH, moved)] == ["MOVED_TO", "MOVED_FROM"]
    without = GRAPH.replace("  (Out=c: f32[N, 4]) = abs(X=x)\n", "").replace(", c", "")
    result = changes(GRAPH, without)
    assert [kind for kind, _, _ in result] == ["REMOVED", "EDITED"]
    assert result[1][1:] == ("return b, c", "return b")


def test_equal_stages_have_no_changes():
    assert changes(GRAPH, GRAPH) == []
    assert text([]) == ""


def test_every_line_of_both_sides_has_one_row_in_order():
    numbers = random.Random(1)
    for _ in range(200):
        before = [Line(k, str(k)) for k in numbers.sample(range(12), numbers.randint(0, 9))]
        after = [Line(k, str(k)) for k in numbers.sample(range(12), numbers.randint(0, 9))]
        rows = compare(before, after)
        assert [r.before for r in rows if r.before is not None] == list(range(len(before)))
        assert [r.after for r in rows if r.after is not None] == list(range(len(after)))
        result = count(rows)
        stayed = {line.key for line in before} & {line.key for line in after}
        assert result[RowKind.REMOVED] == len(before) - len(stayed)
        assert result[RowKind.ADDED] == len(after) - len(stayed)


def test_the_fewest_lines_are_called_moved():
    rows = compare([Line(c, c) for c in "abcdef"], [Line(c, c) for c in "fabcde"])
    assert text(rows) == "1 moved"


def test_the_lines_of_a_stage_are_the_text_of_the_graph():
    g = random_graph(random.Random(3), 12, labels=True)
    seen = stage(g, "s")
    assert "".join(line.text + "\n" for line in lines_of(seen)) == seen.text
    assert len({line.key for line in lines_of(seen)}) == len(lines_of(seen))
