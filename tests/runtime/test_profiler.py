"""Clocks between the steps of a module: the same numbers, one span a step, tables and traces."""

import json
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pytest

import fluid
from compiler.codegen.module import Module
from runtime import executor
from runtime.profiler import MARK, Row, Span, SpanRecorder, rows, table, trace

SOURCE = """
def bind(take, params):
    kept = 3  # not a step

    def step(x):
        # y = mul(x, w)  a.py:1
        # z = relu(y)  a.py:1
        y = x * kept
        # cond = conditional_block(c)
        if y > 3:
            # y = scale(y)
            y = y + 1
            # noop = assign(y)
        else:
            # y = exp(y)
            y = y - 1
        # done(y)
        return (y,)

    return step
"""


def tapped() -> tuple[SpanRecorder, dict[str, object]]:
    recorder = SpanRecorder()
    module = Module("main", "numpy", SOURCE, (), (), (), (), ())
    changed, names = recorder.tap(module)
    exec(changed.source, names)
    return recorder, names


def test_it_computes_the_same_and_reports_each_step() -> None:
    recorder, names = tapped()
    step = names["bind"](None, {})
    assert (step(2), step(1)) == ((7,), (2,))
    kinds = [span.kinds for span in recorder.spans]
    assert kinds == [
        "mul+relu",
        "conditional_block",
        "scale",
        "done",
        "mul+relu",
        "conditional_block",
        "exp",
        "done",
    ]
    assert all(span.stop >= span.start for span in recorder.spans)


def test_a_step_that_fails_leaves_no_wrong_times() -> None:
    recorder, names = tapped()
    step = names["bind"](None, {})
    with pytest.raises(TypeError):
        step(None)
    step(2)
    assert [span.kinds for span in recorder.spans][:2] == ["mul+relu", "conditional_block"]
    assert len(recorder.spans) == 4


def test_a_device_is_waited_for_before_the_clock_is_read() -> None:
    recorder, waited = SpanRecorder(), list[int]()
    module = Module("main", "numpy", SOURCE, (), (), (), (), ())
    changed, names = recorder.tap(module, lambda: waited.append(perf_counter_ns()))
    exec(changed.source, names)
    names["bind"](None, {})(2)
    times = [recorder.spans[0].start, *(span.stop for span in recorder.spans)]
    assert len(waited) == len(times) == 5
    assert all(end <= time for end, time in zip(waited, times, strict=True))
    assert all(time <= end for time, end in zip(times, waited[1:], strict=False))


@pytest.mark.device
def test_an_executor_on_a_device_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    waited = list[str]()
    monkeypatch.setattr(executor, "waiter", lambda device: lambda: waited.append(device))
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        out = fluid.layers.relu(fluid.data("x", [2, 3]))
    with fluid.profiler.profiler("GPU", profile_path=str(tmp_path / "trace")):
        fluid.Executor(fluid.CUDAPlace(0)).run(program, {"x": np.ones((2, 3), "f4")}, [out])
    assert waited and len({*waited}) == 1


def test_a_module_that_is_not_tapped_has_no_clocks() -> None:
    assert MARK not in SOURCE


SPANS = [
    Span(("y = mul(x)",), 0, 2_000_000),
    Span(("z = relu(y)",), 2_000_000, 3_000_000),
    Span(("y = mul(x)",), 5_000_000, 9_000_000),
]


def test_rows_add_up() -> None:
    mul, relu = rows(SPANS, lambda span: span.kinds)
    assert mul == Row("mul", 2, 6.0, 2.0, 4.0, 6 / 7)
    assert (relu.calls, relu.average, mul.average) == (1, 1.0, 3.0)


@pytest.mark.parametrize(
    ("key", "first"), [(None, "mul"), ("calls", "mul"), ("min", "mul"), ("max", "mul")]
)
def test_the_table_is_sorted(key: str | None, first: str) -> None:
    lines = table(rows(SPANS, lambda span: span.kinds), "CPU", key).splitlines()
    assert lines[2:4] == ["Place: CPU", "Time unit: ms"]
    assert lines[6].split() == ["Event", "Calls", "Total", "Min.", "Max.", "Ave.", "Ratio."]
    assert lines[7].split() == [first, "2", "6", "2", "4", "3", "0.857143"]


def test_the_trace_is_one_that_browsers_open() -> None:
    events = [e for e in json.loads(trace(SPANS))["traceEvents"] if e["ph"] == "X"]
    assert [(event["name"], event["ph"], event["ts"], event["dur"]) for event in events] == [
        ("mul", "X", 0.0, 2000.0),
        ("relu", "X", 2000.0, 1000.0),
        ("mul", "X", 5000.0, 4000.0),
    ]
