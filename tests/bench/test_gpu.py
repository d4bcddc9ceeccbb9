"""The command that a GPU machine runs, as far as it can be tried without one."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench import gpu, kernels
from bench.device.cases import cases

KINDS = ("relu(x·a + b)", "concat float16", "embedding")
ENDED = """\
FAILED tests/codegen/test_triton.py::test_one - AssertionError
========= ERROR SUMMARY: 2 errors
1 failed, 30 passed, 2 skipped in 4.2s
"""


@pytest.mark.device
def test_cases_agree_with_torch() -> None:
    pytest.importorskip("triton")
    chosen = [c for c in cases(True, kernels.DTYPES) if any(kind in c.title for kind in KINDS)]
    rows = list(kernels.measure(chosen, {}, False, 0))
    assert len(rows) >= len(KINDS)
    assert all(row["worst"] <= 1 for row in rows), rows
    assert "met     0 of" in kernels.report(rows, {})


def test_a_case_that_fails_is_named() -> None:
    (case,) = [c for c in cases(True, ["float32"]) if c.name == "transpose"]
    broken = type(case)(case.name, "float99", case.inputs, case.build, case.peer)
    with pytest.raises((TypeError, ValueError)) as caught:
        list(kernels.measure([broken], {}, False, 0))
    assert "in the case 'transpose float99'" in caught.value.__notes__


def test_what_a_limit_applies_to() -> None:
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
