"""`bench/cpu.py` on its smallest rows: what is compared, what is missing, what is shown.

No test asserts a time.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fluid
from bench import cpu
from bench.support import line_chart
from bench.support.differences import difference
from bench.versus import growth, page, precision, saved, starts
from bench.versus.race import Times, measure, ratio
from bench.versus.rows import ROWS, Row
from bench.versus.runners import Missing, Runners
from bench.workers import torch_step
from tests.support.nets import bert, steps

SMALL = {"image": 16, "classes": 10}
TINY = Row("a block", {"onnxruntime": {1: 0.9}, "paddle": {1: 1.0}}, case=lambda _: None)
STEP = Row("a line", {"torch": {1: 1.0}, "cached": {1: 0.3}}, "fit_a_line")


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases") / "block"
    return saved.zoo_case(folder, "mobilenet_block", batch=2, **SMALL).folder


# Rows


def test_rows_have_a_goal_for_every_peer_and_number_of_threads() -> None:
    for name, row in ROWS.items():
        assert row.peers and all(goals.keys() == {1, 2} for goals in row.peers.values()), name
        assert bool(row.model) != (row.case is not None), name


@pytest.mark.parametrize("name", sorted(steps.LARGE))
def test_models_in_torch_have_as_many_parameters(name: str) -> None:
    recorded = steps.model(fluid, name)
    trained = [parameter for parameter in recorded.main.all_parameters() if parameter.trainable]
    ours = sum(int(np.prod(each.shape)) for each in trained)
    theirs = sum(parameter.numel() for parameter in torch_step.network(name).parameters())
    assert ours == theirs


def test_the_onnx_file_computes_the_same(block: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    sentences = saved.bert_case(tmp_path / "bert", 16, bert.TINY).folder
    for folder in (block, sentences):
        with Runners(1) as runners:
            row = measure(runners, TINY, str(folder), 0.0, {"paddle": "left out"})
        assert row["agrees"] and row["ratios"]["onnxruntime"] > 0


# Times


def test_a_saved_model_is_timed_without_its_peers(block: Path) -> None:
    with Runners(1, target="numpy") as runners:
        row = measure(runners, TINY, str(block), 0.0, {"onnxruntime": "no onnx"})
    assert row["ms"]["ours"] > 0 and row["ratios"] == row["goals"] == {}
    assert row["notes"]["onnxruntime"] == "no onnx"
    assert "give --reference PYTHON" in row["notes"]["paddle"]


def test_a_step_is_timed_beside_torch() -> None:
    with Runners(1) as runners:
        row = measure(runners, STEP, STEP.model, 0.0, {})
        measured = {"row": STEP.title, "threads": 1, **row}
    assert row["ratios"]["torch"] > 0 and row["rounds"] >= 5
    shown = page.shown([measured])
    assert "give --reference PYTHON" in shown and "of 1 ratios" in shown


def test_a_runner_that_dies_says_why_and_starts_again(block: Path, tmp_path: Path) -> None:
    with Runners(1) as runners:
        with pytest.raises(Missing, match="ours: FileNotFoundError"):
            runners.ask("ours", True, str(tmp_path / "none"), 1)
        assert runners.ask("ours", True, str(block), 1)["walls"]


def test_ratios_of_one_thread_and_of_two() -> None:
    ours, theirs = Times([1, 2, 30], walls=[4.0, 5.0]), Times([2, 2, 10], walls=[2.0, 2.0])
    assert ratio(ours, theirs, threads=1) == 1.0
    assert ratio(ours, theirs, threads=2) == pytest.approx(4.1 / 2.0)


def test_detections_are_compared_in_the_order_of_their_scores(tmp_path: Path) -> None:
    ours = np.array([[1, 0.3, 5], [2, 0.9, 6]], np.float32)
    np.savez(tmp_path / "fluid.npz", out0=ours)
    np.savez(tmp_path / "onnxruntime.npz", out0=ours[::-1])
    assert saved.moved(tmp_path, "fluid", "onnxruntime") > 0.1
    assert saved.moved(tmp_path, "fluid", "onnxruntime", scored=True) == 0.0


def test_nan_differs_from_everything() -> None:
    assert difference([np.float32([np.nan])], [np.float32([1])]) == float("inf")


# Other tables


def test_errors_against_float64(block: Path) -> None:
    assert all(array.dtype == np.float64 for array in precision.in_double(block))
    with Runners(1) as runners:
        row = precision.measure(runners, "a block", block)
    assert 0 < row["ours"] < 1e-5
    assert "a block" in precision.report([row])


def test_growth_by_batch_and_depth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(growth, "BATCHES", (1, 2))
    monkeypatch.setattr(growth, "DEPTHS", (1, 2))
    monkeypatch.setattr(growth, "CHANNELS", 4)
    with Runners(1) as runners:
        rows = list(growth.measure(runners, tmp_path, rounds=1))
    assert [(row["batch"], row["depth"]) for row in rows] == [(1, 1), (2, 1), (1, 2)]
    assert "batch, 1 thread: size^" in growth.report(rows)
    assert ElementTree.fromstring(growth.picture(rows)).tag.endswith("svg")


def test_a_start_is_measured_in_a_fresh_process(block: Path, tmp_path: Path) -> None:
    measured = starts._measured(("fluid", str(block)), {"FLUID_CACHE": str(tmp_path)})
    assert {"imports", "load", "first", "next", "peak", "compilations"} == measured.keys()
    assert measured["compilations"] == 0
    with pytest.raises(RuntimeError, match="no_such_model"):
        starts._measured(("steps", "no_such_model"), {})


def test_starts_alternate_with_those_of_the_peer(
    block: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(arguments: list[str], environment: dict[str, str]) -> tuple[starts.Spent, str]:
        who = "peer" if "onnxruntime" in arguments else "ours"
        ran.append(who)
        return starts.Spent(3.0 if who == "ours" else 2.0, 1.0), '{"peak": 1}'

    ran: list[str] = []
    monkeypatch.setattr(starts, "_run", run)
    monkeypatch.setattr(starts, "STARTED", {block.name: "a block"})
    rows = list(starts.measure_starts(block.parent, {}, rounds=2))
    assert ran[:6] == ["ours", "peer"] * 3
    assert [row["start"] for row in rows] == [*starts.START_GOALS]
    assert (rows[0]["ours ÷ its"], rows[0]["CPU ÷ its"], rows[0]["cached MB"]) == (1.5, 1.0, 0.0)
    assert "met     a block, cold cache: 1.50 (goal ≤ 1.5)" in starts.report([], rows)


# The command


def test_the_command_prints_and_writes(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLUID_REFERENCE_PYTHON", raising=False)
    path = tmp_path / "cpu.json"
    asked = ["--only", "fit_a_line", "--threads", "1", "--seconds", "0", "--json", str(path)]
    cpu.main([*asked, "--target", "numpy"])
    shown = capsys.readouterr().out
    assert "fit_a_line, 1 threads" in shown and "Ours ÷ peers" in shown
    written: Mapping[str, Any] = json.loads(path.read_text())
    assert written["target"] == "numpy" and written["rows"][0]["ms"]["ours"] > 0
    assert "Ours ÷ peers" in path.with_suffix(".md").read_text()


def test_a_line_chart_is_well_formed() -> None:
    drawn = line_chart.chart("a < b", "x", [line_chart.Line("one & two", [(1, 2.0), (4, 8.0)])])
    names = [each.text for each in ElementTree.fromstring(drawn).iter() if each.text]
    assert {"a < b", "one & two"} <= set(names)
