"""The command that a GPU machine runs, as far as it can be tried without one."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import account, gpu, gpu_models, kernels
from bench.device import models
from bench.device.cases import cases
from compiler.cost.gpu_limits import GPUS
from runtime.gpu.cuda import interprets

KINDS = (
    "relu(x·a + b)", "concat float16", "embedding", "attention with a mask float16", "lstm float32",
)  # fmt: skip
ENDED = """\
FAILED tests/codegen/test_triton.py::test_one - AssertionError
========= ERROR SUMMARY: 2 errors
1 failed, 30 passed, 2 skipped in 4.2s
"""


@pytest.mark.device
def test_cases_agree_with_torch() -> None:
    pytest.importorskip("triton")
    chosen = [c for c in cases(True, kernels.DTYPES) if any(kind in c.title for kind in KINDS)]
    rows = list(kernels.measure(chosen, {}, not interprets(), 0))
    assert len(rows) >= len(KINDS)
    assert all(row["worst"] <= 1 for row in rows), rows
    assert "met     0 of" in kernels.report(rows, {})


@pytest.mark.device
def test_a_case_that_fails_leaves_a_row_and_the_others_are_measured(capsys: Any) -> None:
    pytest.importorskip("triton")
    good = [c for c in cases(True, ["float32"]) if c.name in ("transpose", "concat")]
    broken = replace(good[0], dtype="float99")
    rows = list(kernels.measure([broken, good[1]], {}, not interprets(), 0))
    assert [row["case"] for row in rows] == ["transpose float99", "concat float32"]
    assert "float99" in rows[0]["error"] and "ms" in rows[1]
    assert [case.partition(":")[0] for case in kernels.wrong_cases(rows)] == ["transpose float99"]
    assert "MISSED  1 of 2 fail or differ" in kernels.report(rows, {})
    assert "float99" in capsys.readouterr().err


def test_results_are_written_after_every_case_and_counted_in_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "kernels.json", list[int]()

    def measure(*_: Any) -> Iterator[dict[str, Any]]:
        yield {"case": "a", "ms": 1.0, "worst": 0.5}
        seen.append(len(json.loads(path.read_text())["kernels"]))
        yield {"case": "b", "ms": 1.0, "worst": float("nan")}

    monkeypatch.setattr(kernels, "measure", measure)
    monkeypatch.setattr(kernels, "ceilings", lambda *_: {})
    monkeypatch.setattr(sys, "argv", ["kernels.py", "--small", "--json", str(path)])
    assert kernels.main() == 1 and seen == [1]


PASSED = {"seconds": 1.0, "timed out": False, "exit code": 0, "failures": []}
MODEL = {"model": "lenet", "work": "training", "dtype": "fp32", "batch": 64, "ms": 1.0}
ROW = {"case": "a", "ms": 1.0, "worst": 0.1}


@pytest.mark.parametrize(("stage", "found"), [
    ("tests", PASSED | {"exit code": 1}), ("tests", PASSED | {"timed out": True}),
    ("sanitizer", PASSED | {"memory errors": 2}), ("sanitizer", PASSED | {"exit code": 1}),
    ("kernels", {"failed": "bench/kernels.py ended with -9"}),
    ("kernels", {"kernels": [ROW], "cases": 2}),
    ("kernels", {"kernels": [ROW | {"worst": 1.5}]}),
    ("kernels", {"kernels": [{"case": "a", "error": "it broke"}]}),
    ("models", {"models": [], "exit code": 1}),
])  # fmt: skip
def test_every_stage_counts(stage: str, found: dict[str, Any]) -> None:
    good = {
        "tests": PASSED, "sanitizer": {"left out": "no tool"}, "kernels": {"kernels": [ROW]},
        "models": {"models": [MODEL], "exit code": 0},
    }  # fmt: skip
    assert gpu.failed_stages(good) == []
    told = {"device": "H200", "machine": {}, **good, stage: found}
    assert gpu.failed_stages(told) == [stage]
    assert f"- failed: {stage}\n" in gpu.summary(told)


def test_stages_do_not_use_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    script = "import os; print(os.environ['TRITON_INTERPRET'])"
    assert gpu.ran([sys.executable, "-c", script], 30).text == "0\n"


def test_limits_apply_to_listed_kernels() -> None:
    (copied,) = [c for c in cases(False, ["float32"]) if c.name == "transpose"]
    limits = {"copy GB/s": 4000.0, "float32 TFLOP/s": 50.0}
    assert kernels._reached(copied, 8 * 10**9, 4.0, limits)["of limit"] == pytest.approx(0.5)
    (product,) = [c for c in cases(False, ["float32"]) if c.name == "matmul"]
    reached = kernels._reached(product, 0, product.flops / 25e9, limits)
    assert reached == {"limit": "product", "of limit": pytest.approx(0.5)}


def test_a_run_is_counted() -> None:
    counted = gpu._counted(gpu.Ended(ENDED, 4.2, False, 1))
    assert (counted["passed"], counted["failed"], counted["skipped"]) == (30, 1, 2)
    assert counted["failures"] == ["tests/codegen/test_triton.py::test_one"]


def test_a_command_that_is_late_is_stopped_with_its_output(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(gpu, "_GRACE", 1)
    begun = time.monotonic()
    script = "import time; print('begun', flush=True); time.sleep(60)"
    ended = gpu.ran([sys.executable, "-c", script], 2.5)
    assert ended.timed_out
    assert ended.text.startswith("begun\n")
    assert time.monotonic() - begun < 30
    assert "begun" in capsys.readouterr().out


def test_the_summary_is_a_page(tmp_path: Path) -> None:
    told = {
        "device": "NVIDIA H200",
        "machine": {"cpus": 16},
        "tests": gpu._counted(gpu.Ended(ENDED, 4.2, False, 1)),
        "sanitizer": {"left out": "compute-sanitizer is not installed"},
        "kernels": {"limits": {"copy GB/s": 4300.0}, "kernels": [
            {"case": "softmax float32", "ms": 0.2, "eager ms": 0.3, "ours ÷ eager": 0.67,
             "of limit": 0.9, "limit": "copy", "worst": 0.1},
        ]},
    }  # fmt: skip
    page = gpu.summary(told)
    assert page.startswith("# NVIDIA H200\n")
    assert "30 passed, 1 failed, 2 skipped, 4.2 s, `tests/codegen/test_triton.py::test_one`" in page
    assert "softmax float32" in page


def test_without_a_gpu_nothing_is_written(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "out")])
    assert gpu.main() == 1
    assert "make test" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_models_beside_their_peers_are_listed() -> None:
    case = models.chosen(["bert training"])[1]
    assert case.title == "bert training bf16 16 × 512"
    profile = [("k", 3.0, 0.25)]
    row = {**vars(case), "ms": 2.0, "compiled ms": 4.0, "ours ÷ compiled": 0.5, "launches": 3.0}
    row |= {"kernels ms": 0.25, "compiled kernels ms": 1.5}
    row |= {"profiles": {"ours": profile, "compiled": profile}}
    assert "bert training bf16, batch 16: compiled, 1.500 ms of kernels" in gpu_models.listing(
        row, 1
    )
    assert " 512  2.00" in gpu_models.report([row], "H200")


def test_every_case_has_a_title_of_its_own_and_offsets_of_its_sequences() -> None:
    assert len({case.title for case in models.CASES}) == len(models.CASES) >= 18
    fed = models.arrays({"x": (np.zeros((5, 2)), [2, 3]), "y": np.ones(1)})
    assert fed["x@LOD0"].tolist() == [0, 2, 5] and [*fed] == ["x", "x@LOD0", "y"]


def test_steps_are_counted_without_a_gpu() -> None:
    case = models.Case("lenet", "training", "fp32", 64)
    (row,) = account.measure_steps([case], GPUS["h200"])
    assert row["graphs"] == 1 and 20 < row["launches"] < 60
    assert "lenet" in account.report_steps([row], GPUS["h200"])
