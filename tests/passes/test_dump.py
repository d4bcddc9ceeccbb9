"""Dumps: every stage as text, drawing and model, and a table that a program can read."""

import json

import pytest

from compiler.driver import compile_graph
from compiler.ir.model_format.program_desc import load_program
from compiler.ir.text.parser import parse
from compiler.ir.text.printer import digest
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.dump import Dump
from compiler.passes.pipeline import pipeline
from tests.support.full_disk import files_of_at_most

TEXT = """\
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 4]
  param lr: f32[1]
  (Out=h: f32[N, 4]) = mul(X=x, Y=w)  // train.py:3
  (Out=y: f32[N, 4]) = scale(X=h) {'scale': 2.0}
  (Out=z: f32[N, 4]) = relu(X=y)
  (Out=idle: f32[N, 4]) = tanh(X=h)
  (Out=g: f32[4, 4]) = mul(X=w, Y=w)
  (ParamOut=w#1: f32[4, 4] over w) = sgd(Param=w, Grad=g, LearningRate=lr)
  return z
}
"""


def dumped(folder):
    compile_graph(parse(TEXT), dump=folder)
    rows = [json.loads(line) for line in (folder / "passes.jsonl").read_text().splitlines()]
    return folder, rows


def test_every_stage_is_there_as_text_drawing_and_model(tmp_path):
    folder, rows = dumped(tmp_path / "stages")
    names = [pass_.name for pass_ in pipeline(Options())]
    assert [row["name"] for row in rows] == ["start", *names]
    for number, row in enumerate(rows):
        stem = f"{number:02d}-{row['name']}"
        graph = parse((folder / f"{stem}.ir").read_text(encoding="utf-8"))
        assert digest(graph) == row["digest"]
        assert len(graph) == row["ops"]
        assert (folder / f"{stem}.dot").read_text(encoding="utf-8").startswith('digraph "main" {')
        ops = load_program((folder / f"{stem}.__model__").read_bytes()).blocks[0].ops
        kinds = [op.type for op in ops]
        assert kinds[0] == "feed" and kinds[-1] == "fetch"
        assert kinds[1:-1] == [op.kind for op in graph.ops()]
    assert (folder / "main.py").is_file() and (folder / "main.plan").is_file()


def test_the_table_reports_what_each_pass_did(tmp_path):
    _, rows = dumped(tmp_path)
    results = {row["name"]: row for row in rows}
    assert results["start"]["ops"] - results["eliminate_dead"]["ops"] == 1
    assert results["fuse_pointwise"]["kernels"] < results["eliminate_dead"]["kernels"]
    assert results["start"]["bytes"] == "64*N + 64"
    assert all(row["ms"] >= 0 for row in rows)


def test_dumps_are_the_same_every_time_but_for_the_times(tmp_path):
    (one, rows), (two, others) = dumped(tmp_path / "1"), dumped(tmp_path / "2")
    for path in sorted(one.iterdir()):
        if path.name != "passes.jsonl":
            assert path.read_bytes() == (two / path.name).read_bytes(), path.name
    assert [{**row, "ms": 0} for row in rows] == [{**row, "ms": 0} for row in others]


def test_a_full_disk_names_the_file_and_leaves_whole_files_only(tmp_path):
    with pytest.raises(OSError, match=r"00-start\.dot") as caught, files_of_at_most(600):
        dumped(tmp_path)
    assert caught.value.filename == str(tmp_path / "00-start.dot")
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        "00-start.ir": len(TEXT), "passes.jsonl": 0,
    }  # fmt: skip


def test_a_graph_that_no_program_can_express_has_no_model_and_a_reason(tmp_path):
    graph = parse(
        "graph main {\n  feed runs: token[]*\n  feed x: f32[1]\n"
        "  (Written=x#1: f32[1]) = unwind(Captured=x, Runs=runs) graph b {\n"
        "    feed x: f32[1]\n    (Out=x#1: f32[1]) = relu(X=x)\n    return x#1\n  }\n"
        "  return x#1\n}\n"
    )
    dump = Dump(tmp_path)
    dump.start(graph, Context())
    row = json.loads((tmp_path / "passes.jsonl").read_text())
    assert "which a program cannot express" in row["no_model"]
    assert not (tmp_path / "00-start.__model__").exists()
