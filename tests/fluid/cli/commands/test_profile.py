"""`fluid profile`: a table of a script's ops, and of a model's beside the roofline."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.codegen.native.host import detected
from fluid.cli.profiling import native as native_profile
from fluid.cli.profiling.script import Totals, report
from runtime.profiler import Span, SpanRecorder
from tests.fluid.test_cli import refused, run

ROOT = Path(__file__).parents[4]
MODEL = ROOT / "tests/golden/inference/digits_mlp__separate"
on_native = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

SCRIPT = """\
import sys
import numpy as np
import paddle.fluid as fluid

x = fluid.layers.data("x", [8])
loss = fluid.layers.mean(fluid.layers.fc(x, 4))
fluid.optimizer.SGD(0.1).minimize(loss)
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
for _ in range(int(sys.argv[1])):
    exe.run(feed={"x": np.ones((3, 8), "float32")}, fetch_list=[loss])
"""


def profiled(
    folder: Path, more: str = "", what: tuple[str, ...] = ("train.py",)
) -> subprocess.CompletedProcess[str]:
    """The script with more lines at its end, as a user profiles it: seven steps of training."""
    (folder / "train.py").write_text(SCRIPT + more)
    command = [sys.executable, "-m", "fluid", "profile", *what, "7"]
    paths = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=os.environ | paths, capture_output=True, text=True, timeout=120
    )


def test_the_ops_of_a_script_have_their_calls_and_lines(tmp_path: Path) -> None:
    result = profiled(tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if "train.py:" in line}
    assert re.search(r"train\.py:6 +7 ", rows["mean_grad"])
    assert re.search(r"train\.py:7 +7 ", rows["sgd"])
    assert re.search(r"train\.py:6 +1 ", rows["uniform_random"])
    assert re.search(r"\d+ steps took .* of .*; passes of the compiler", result.stdout)


def test_the_table_also_follows_an_error_of_a_module(tmp_path: Path) -> None:
    result = profiled(tmp_path, "raise ValueError('no more')\n", ("-m", "train"))
    assert result.returncode == 1
    assert "ValueError: no more" in result.stderr
    assert "steps took" in result.stdout


def test_the_exit_code_is_that_of_the_script(tmp_path: Path) -> None:
    result = profiled(tmp_path, "sys.exit(3)\n")
    assert result.returncode == 3
    assert "steps took" in result.stdout


def test_runs_of_a_step_are_added_up() -> None:
    totals = Totals()
    recorder = SpanRecorder(totals.add)
    for start in (0, 100):
        recorder.add(Span(("y = mul(x, w)  a.py:3",), start, start + 50, flops=200, moved=100))
    recorder.add(Span(("z = unique(y)  a.py:4",), 0, 300))
    lines = report(totals, recorder.passes, 1e-6).splitlines()
    assert lines[1].split()[:5] == ["unique", "z", "a.py:4", "1", "0.00"]
    assert lines[1].endswith("in NumPy")
    assert lines[2].split() == [
        "mul",
        "y",
        "a.py:3",
        "2",
        "0.00",
        "0.05",
        "25.0",
        "%",
        "4.0",
        "2.0",
    ]
    assert lines[3] == "2 steps took 400.00 ns of 1.00 µs; passes of the compiler 0.00 ns"
    assert recorder.spans == []


def test_a_script_without_programs_says_so() -> None:
    assert report(Totals(), [], 0.25) == "no program was run in 250.00 ms"


@on_native
def test_a_model_is_compared_with_the_roofline(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_profile, "HELD", (1 << 18, 1 << 20))
    monkeypatch.setattr(native_profile, "SECONDS", 0.01)
    chart, page = tmp_path / "roofline.svg", tmp_path / "page.html"
    printed = run(capsys, "profile", MODEL, "--batch", "8", "--chart", chart, "--html", page)
    assert "N = 8" in printed
    assert "of roof" in printed
    assert chart.read_text().startswith("<svg")
    assert "LLVM IR" in page.read_text()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([MODEL, "--cpu"], "are for scripts"),
        ([MODEL, MODEL], "one model is expected, not also"),
        (["absent"], "absent does not exist"),
        (["absent.py", "--epochs", "3"], "absent.py is not a file"),
    ],
)
def test_profile_errors(
    capsys: pytest.CaptureFixture[str], options: list[object], reason: str
) -> None:
    assert reason in refused(capsys, "profile", *options)
