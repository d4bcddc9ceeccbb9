"""Native programs are as visible as those in NumPy: times of each op, `--target`, scripts."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.native.host import detected
from fluid.cli import main as cli
from fluid.cli.profiling.script import Totals, report
from fluid.cli.profiling.steps import steps_table
from fluid.cli.target import use_target
from fluid.profiler import recording
from runtime.profiler import Span
from tests.fluid.test_cli import one_feed, refused, run

pytestmark = [
    pytest.mark.skipif(detected() is None, reason="no native code for this CPU"),
    pytest.mark.usefixtures("fresh_programs"),
]
__all__ = ["one_feed"]


def spans(monkeypatch: pytest.MonkeyPatch, *, rows: int = 4) -> list[Span]:
    """The times of a native program: products, a step of NumPy between them."""
    monkeypatch.setenv("FLUID_TARGET", "native")
    x = fluid.data("x", [None, 64])
    h = fluid.layers.fc(x, 32, act="relu")
    unique, _ = fluid.layers.unique(fluid.layers.reshape(h, [-1]))
    loss = fluid.layers.mean(fluid.layers.fc(h, 8)) + fluid.layers.mean(unique)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {"x": np.ones((rows, 64), "float32")}
    (expected,) = exe.run(feed=feed, fetch_list=[loss])
    with recording() as recorded:
        (actual,) = exe.run(feed=feed, fetch_list=[loss])
    assert actual == expected
    return recorded.spans


def test_each_op_of_a_sequence_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    result = spans(monkeypatch)
    first = result[0]
    assert first.kinds == "mul+elementwise_add+relu"
    assert "test_native.py:" in first.line
    assert first.outputs == "fc_0.tmp_2"
    assert first.flops >= 2 * 4 * 64 * 32
    assert first.moved >= 4 * (4 * 64 + 64 * 32 + 4 * 32)
    assert len({span.ops for span in result}) == len(result)
    assert all(a.stop <= b.start for a, b in pairwise(result))


def test_an_op_in_numpy_has_no_rates_and_excludes_the_sequence_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = spans(monkeypatch)
    (numpy,) = [span for span in result if "unique" in span.kinds]
    assert (numpy.flops, numpy.moved) == (0, 0)
    assert result[-1] is not numpy


@pytest.mark.parametrize("level", ["0", "1"])
def test_work_that_only_a_run_knows_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Rows of sequences are counted in a run; checking mode writes more about each command."""
    monkeypatch.setenv("FLUID_TARGET", "native")
    monkeypatch.setenv("FLUID_CHECK", level)
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = fluid.layers.data("label", [1], dtype="int64")
    rows = fluid.layers.embedding(words, [9, 4])
    pooled = fluid.layers.sequence_pool(rows, "sum")
    scores = fluid.layers.fc(pooled, 2, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(scores, label))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    feed = {
        "words": fluid.create_lod_tensor(np.arange(5).reshape(5, 1), [[2, 3]], fluid.CPUPlace()),
        "label": np.array([[0], [1]]),
    }
    with recording() as recorded:
        exe.run(feed=feed, fetch_list=[loss])
    assert all(
        isinstance(count, int) for span in recorded.spans for count in (span.flops, span.moved)
    )
    assert any(span.moved for span in recorded.spans)


def test_infer_prints_the_time_of_each_op(
    capsys: pytest.CaptureFixture[str], one_feed: tuple[Path, Path]
) -> None:
    model, x = one_feed
    before = os.environ.get("FLUID_TARGET")
    printed = run(capsys, "infer", model, "--input", x, "--target", "native", "--profile")
    (row,) = [line for line in printed.splitlines() if line.startswith("mul+")]
    assert "save_infer_model/scale_0.tmp_0" in row
    assert "in NumPy" not in row
    assert "GFLOP/s" in printed
    assert os.environ.get("FLUID_TARGET") == before


def test_native_steps_of_unknown_work_are_not_called_numpy() -> None:
    span = Span(("y = sequence_pool(x)",), 0, 3000, native=True)
    totals = Totals()
    totals.add(span)
    for shown in (steps_table([span], 1), report(totals, (), 1e-6)):
        assert shown.splitlines()[1].endswith("unknown work")


def test_one_slow_run_changes_no_share() -> None:
    def step(op: str, *times: int) -> list[Span]:
        return [Span((f"{op} = {op}(x)",), 0, time) for time in times]

    shown = steps_table([*step("relu", 3000, 3000, 3000), *step("exp", 1000, 1000, 90000)], 3)
    relu, exp = (line.split() for line in shown.splitlines()[1:3])
    assert relu == ["relu", "relu", "1", "3.00", "75.0", "%", "in", "NumPy"]
    assert exp == ["exp", "exp", "1", "1.00", "25.0", "%", "in", "NumPy"]
    assert "median of 3 runs; all steps take 0.004 ms a run" in shown


@pytest.mark.parametrize(("command", "known"), [
    ("infer", "numpy, native or cuda"), ("run", "numpy or native"),
])  # fmt: skip
def test_an_unknown_target_is_named(
    capsys: pytest.CaptureFixture[str], command: str, known: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--target", "nativ", "there"])
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert f"'nativ' is no target, expected {known}; did you mean 'native'?" in message


def test_without_llvmlite_the_target_says_what_to_install(
    capsys: pytest.CaptureFixture[str], one_feed: tuple[Path, Path], monkeypatch: Any
) -> None:
    monkeypatch.setattr("fluid.cli.target.llvm_version", lambda: "")
    model, x = one_feed
    message = refused(capsys, "infer", model, "--input", x, "--target", "native")
    assert "fluid-compiler[native]', or take --target numpy" in message


def test_run_sets_the_target_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_TARGET", "numpy")
    options = cli.parser().parse_args(["run", "--target", "native", "train.py", "--target", "2"])
    assert (options.target, options.arguments) == ("native", ["--target", "2"])
    use_target(options.target)
    assert os.environ["FLUID_TARGET"] == "native"


def test_a_native_module_runs_as_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_DUMP", str(tmp_path))
    spans(monkeypatch)
    path = next(each for each in tmp_path.glob("*/*.py") if "native([" in each.read_text())
    root = str(Path(__file__).parents[4])
    done = subprocess.run(
        [sys.executable, path, *["N=4"] * ("'N'" in path.read_text())],
        env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "one step in" in done.stdout
