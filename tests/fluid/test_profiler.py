"""`fluid.profiler`: the same numbers, a row for every op, a trace in a file."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import profiler

pytestmark = pytest.mark.usefixtures("fresh_programs")
FEED = {"x": np.ones((4, 3), "float32")}


@pytest.fixture
def mean(exe: Any) -> fluid.Variable:
    result = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2, act="relu"))
    exe.run(fluid.default_startup_program())
    return result


def events(path: Path) -> list[str]:
    return [event["name"] for event in of(path, "op")]


def of(path: Path, category: str) -> list[dict[str, Any]]:
    result = json.loads(path.read_text())["traceEvents"]
    return [event for event in result if event.get("cat") == category]


def test_a_trace_has_the_bytes_of_each_step_and_the_passes(
    mean: Any, exe: Any, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    with profiler.tracing(path):
        exe.run(feed=FEED, fetch_list=[mean])
        exe.run(feed={"x": np.ones((8, 3), "float32")}, fetch_list=[mean])
    created = [event["args"]["bytes made"] for event in of(path, "op")]
    assert created == [4 * 2 * 4, 4, 8 * 2 * 4, 4]
    alive = [event["args"]["bytes alive"] for event in of(path, "op")]
    assert alive == [32, 36, 64, 68]
    curve = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "C"]
    assert [event["args"]["bytes alive"] for event in curve] == alive
    passes = of(path, "pass")
    assert "fuse_pointwise" in [event["name"] for event in passes]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in pairwise(passes))
    assert profiler.recorder() is None


def test_no_file_no_trace(mean: Any, exe: Any) -> None:
    with profiler.tracing(None):
        assert profiler.recorder() is None


def test_what_runs_is_timed(mean: Any, exe: Any, tmp_path: Path, capsys: Any) -> None:
    (wanted,) = exe.run(feed=FEED, fetch_list=[mean])
    with profiler.profiler("CPU", "total", str(tmp_path / "trace")):
        actual = [exe.run(feed=FEED, fetch_list=[mean])[0] for _ in range(3)]
    exe.run(feed=FEED, fetch_list=[mean])
    assert all(np.array_equal(each, wanted) for each in actual)
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines() if "::" in line]
    assert sorted(rows) == [
        ["thread0::mean", "3"],
        ["thread0::mul+elementwise_add+relu", "3"],
    ]
    assert events(tmp_path / "trace") == ["mul+elementwise_add+relu", "mean"] * 3
    assert profiler.recorder() is None


def test_what_was_recorded_is_forgotten_on_request(mean: Any, exe: Any, tmp_path: Path) -> None:
    profiler.start_profiler("All", tracer_option="AllOpDetail")
    profiler.start_profiler("GPU")
    exe.run(feed=FEED, fetch_list=[mean])
    profiler.reset_profiler()
    exe.run(feed=FEED, fetch_list=[mean])
    profiler.stop_profiler(profile_path=str(tmp_path / "trace"))
    assert len(events(tmp_path / "trace")) == 2
    profiler.stop_profiler()
    profiler.reset_profiler()


def test_every_op_has_a_row_in_detail(
    mean: Any, exe: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with profiler.profiler("CPU", None, str(tmp_path / "trace"), "AllOpDetail"):
        exe.run(feed=FEED, fetch_list=[mean])
    assert "mean_0.tmp_0 = mean(fc_0.tmp_2)" in capsys.readouterr().out


def test_an_error_still_ends_it(tmp_path: Path) -> None:
    with pytest.raises(KeyError), profiler.profiler("CPU", profile_path=str(tmp_path / "trace")):
        raise KeyError
    assert profiler.recorder() is None
    assert events(tmp_path / "trace") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cpu",), "The state must be 'CPU' or 'GPU' or 'All', but received 'cpu'"),
        (("CPU", "time"), "sorted_key must be None or one of 'calls', 'total'"),
        (("CPU", None, "trace", "Op"), "tracer option must be one of 'Default'"),
    ],
)
def test_words_it_does_not_know(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message), profiler.profiler(*arguments):
        pass
    assert profiler.recorder() is None


def test_a_wrong_key_at_the_end_loses_nothing(tmp_path: Path) -> None:
    profiler.start_profiler("CPU")
    with pytest.raises(ValueError, match="sorted_key"):
        profiler.stop_profiler("time")
    profiler.stop_profiler("ave", str(tmp_path / "trace"))
    assert events(tmp_path / "trace") == []


def test_nvidia_s_profiler_needs_a_gpu() -> None:
    with pytest.raises(ValueError, match="output mode must be 'kvp' or 'csv'"):
        profiler.cuda_profiler("file", "xml")
    with pytest.raises(AssertionError, match="Not compiled with CUDA"):
        profiler.cuda_profiler("file")


@pytest.mark.parametrize(("state", "place"), [("CPU", "CPU"), ("GPU", "CUDA"), ("All", "All")])
def test_the_table_names_the_place_that_was_asked_for(
    state: str, place: str, tmp_path: Path, capsys: Any
) -> None:
    with profiler.profiler(state, profile_path=str(tmp_path / "trace")):
        pass
    assert f"\nPlace: {place}\n" in capsys.readouterr().out
