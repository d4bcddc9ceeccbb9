"""The sweep over sizes: right cases pass, and each kind of fault is reported as such."""

import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.codegen.native.host import detected
from compiler.ir.text.printer import parse
from tools.verify import sizes
from tools.verify.sizing.judge import differences
from tools.verify.sizing.layer_cases import layer_cases
from tools.verify.sizing.op_cases import op_cases
from tools.verify.sizing.problem import Case, Problem, Refused, reference
from tools.verify.sizing.programs import PROGRAMS
from tools.verify.sizing.recorder import Recorded
from tools.verify.sizing.sweep import Outcome, counts, outcome, run_cases
from tools.verify.sizing.targets import WAYS, Runner
from tools.verify.support.children import Limits

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

NATIVE = WAYS["native"]
OPS = "softmax.0 reduce_sum.3 batch_norm.0 gather.0 sequence_pool.1 conv2d.0 adam.0".split()
KINK = """graph main {
  feed x: f32[1000]
  feed y: f32[1000]
  (Out=d: f32[1000]) = elementwise_sub(X=x, Y=y)
  (Out=z: f32[1000]) = sign(X=d)
  return z
}"""
LINE = KINK.replace("sign(X=d)", "scale(X=d) {'scale': 2.0}")


def problem(text: str, seed: int, tie: bool = False) -> Problem:
    """Two vectors of random numbers; with `tie`, one element is the same in both, by chance."""
    rng = np.random.default_rng(seed)
    x, y = (rng.uniform(0.5, 1, 1000).astype(np.float32) for _ in range(2))
    if tie:
        place = rng.integers(1000)
        y[place] = x[place]
    graph = lambda: parse(text)  # noqa: E731
    return Problem(lambda: (graph(), ["z"]), {"x": x, "y": y}, {})


def altered(change: Any, given: Problem) -> Any:
    """What the reference computes, with a change of its only result."""
    actual = {name: array.astype(np.float32) for name, array in reference(given).items()}
    change(actual["z"], given)
    return actual


# What is wrong, and what is not


def flip_ties(z: Any, given: Problem) -> None:
    z[given.feed["x"] == given.feed["y"]] = 1


def negate_the_seventh(z: Any, given: Problem) -> None:
    z[7] = -z[7]


def negate_the_end(z: Any, given: Problem) -> None:
    z[-40:] = z[:40]


def round_roughly(z: Any, given: Problem) -> None:
    z *= np.float32(1 + 1e-6)


def make_one_nan(z: Any, given: Problem) -> None:
    z[3] = np.nan


@pytest.mark.parametrize("change", [flip_ties, round_roughly])
def test_branches_within_rounding_are_right(change: Any) -> None:
    text = KINK if change is flip_ties else LINE
    assert not list(differences(partial(problem, text, tie=True), partial(altered, change)))


@pytest.mark.parametrize("change", [negate_the_seventh, negate_the_end, make_one_nan])
@pytest.mark.parametrize("text", [KINK, LINE], ids=["branch", "line"])
def test_elements_that_are_always_wrong_are_reported(change: Any, text: str) -> None:
    (line,) = differences(partial(problem, text, tie=True), partial(altered, change))
    assert line.startswith("z[") and "of 1000 differ" in line


def test_another_shape_is_reported() -> None:
    lines = differences(partial(problem, LINE), lambda given: {"z": np.zeros(3, np.float32)})
    assert list(lines) == ["z: shape (3,), expected (1000,)"]


# Cases


@pytest.mark.parametrize("name", OPS)
def test_small_op_cases_are_right(name: str) -> None:
    results = [case for case in op_cases("small", name) if case.name.startswith(f"{name}/")]
    assert results
    for case in results[:2]:
        assert outcome(case, NATIVE, (1, 2)).state == "right", case.name


PROGRAM_ARGS: dict[str, dict[str, Any]] = {
    "norm": {"kind": "batch_norm", "shape": (8, 4, 6, 6)},
    "sequence": {"kind": "pool_sum", "count": 20, "longest": 7, "width": 3},
    "optimizer": {"kind": "Momentum", "shape": (31, 17), "momentum": 0.9, "clip": "global"},
    "classification": {"rows": 37, "classes": 11},
    "broadcast": {"kind": "elementwise_mul", "shape": (5, 7, 3), "other": (7,), "axis": 1},
}


@pytest.mark.parametrize("has_names", [False, True], ids=["static", "named"])
@pytest.mark.parametrize("name", PROGRAM_ARGS)
def test_small_programs_are_right(name: str, has_names: bool) -> None:
    record = lambda recorder: PROGRAMS[name](recorder, **PROGRAM_ARGS[name])  # noqa: E731
    recorded = Recorded(name, record, name != "optimizer", has_names)
    result = outcome(Case(name, recorded.problem), NATIVE, (1, 2))
    assert result.state == "right", result.text


def test_optimizers_are_compared_by_the_state_that_they_leave() -> None:
    record = lambda recorder: PROGRAMS["optimizer"](recorder, kind="Adam", shape=(5, 3))  # noqa: E731
    actual = reference(Recorded("adam", record, False).problem(0))
    assert {"weight afterwards", "bias afterwards", "weight_moment1_0 afterwards"} <= set(actual)


def test_there_are_more_than_ten_thousand_layer_and_op_cases() -> None:
    assert sum(1 for _ in layer_cases("real")) > 2000
    names = [case.name for case in op_cases("real", "softmax.0")]
    assert len(names) == len(set(names)) > 20
    for part in ("/all/", "/row/", "/column/", "/empty/", "/named/", "float64", "bfloat16"):
        assert any(part in name for name in names)


# Faults of a target


def case(make: Any = None) -> Case:
    return Case("line", make or partial(problem, LINE))


def broken(step: Any) -> Any:
    """Native code whose step is replaced."""
    return replace(NATIVE, load=lambda module, state: partial(step, NATIVE.load(module, state)))


def drops_a_part(step: Any, feed: Any) -> Any:
    (result,) = step(feed)
    result[500:] = 0
    return [result]


def depends_on_threads(step: Any, feed: Any) -> Any:
    return [np.nextafter(step(feed)[0], 9 if os.environ["CPU_NUM"] == "1" else -9)]


def raises(step: Any, feed: Any) -> Any:
    raise ValueError("no such\nstep")


def test_a_broken_kernel_is_wrong() -> None:
    result = outcome(case(), broken(drops_a_part), (1,))
    assert result.state == "wrong" and "z[" in result.text and "500 of 1000 differ" in result.text


def test_results_that_depend_on_threads_are_wrong() -> None:
    result = outcome(case(), broken(depends_on_threads), (1, 2))
    assert (result.state, result.text) == ("wrong", "z has other bits with 2 threads")


def test_an_error_is_reported_in_one_line() -> None:
    result = outcome(case(), broken(raises), (1,))
    assert result.state == "raised" and result.text.startswith(
        "ValueError: no such step [test_sizes"
    )


def test_inputs_that_the_reference_refuses_are_no_failure() -> None:
    def refused(seed: int) -> Problem:
        raise Refused("too small")

    assert outcome(case(refused), NATIVE, (1,)).state == "refused"


def test_a_crash_and_a_hang_lose_one_case_each() -> None:
    def run(each: Case) -> Outcome:
        if each.name == "crashes":
            os._exit(7)
        time.sleep(60 if each.name == "hangs" else 0)
        return Outcome(each.name, "right")

    names, seen = ("first", "crashes", "hangs", "last"), list[Outcome]()
    cases = [Case(name, partial(problem, LINE)) for name in names]
    limits = Limits(8 << 30, 0.5, 0.5)
    result = run_cases(cases, run, limits, seen.append, workers=1)
    assert [each.state for each in result] == ["right", "crash", "hang", "right"]
    assert seen == result
    assert result[1].text == "exit code 7" and result[2].text == "more than 0.5 s"
    assert counts(result)["right"] == 2


def test_no_case_starts_after_the_time_is_up() -> None:
    limits = Limits(8 << 30, 5, 5, 0.0)
    assert not run_cases([case()], lambda each: Outcome("", "right"), limits, print, workers=1)


# The command


def run(monkeypatch: Any, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["sizes.py", *words])
    return sizes.main()


def test_the_command_runs_cases_and_writes_outcomes(
    monkeypatch: Any, capsys: Any, tmp_path: Path
) -> None:
    words = ["--scale", "small", "--only", "softmax.2/", "--count", "2", "--jobs", "1"]
    assert run(monkeypatch, *words, "--json", str(tmp_path / "found.json")) == 0
    assert "met     0 failed" in capsys.readouterr().out
    text = (tmp_path / "found.json").read_text()
    assert text.count('"state": "right"') == 2


def test_a_failure_is_a_line_and_the_command_that_repeats_it(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(WAYS, "native", broken(raises))
    words = ["--scale", "small", "--only", "softmax.2/", "--count", "1", "--jobs", "1"]
    assert run(monkeypatch, *words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("raised: softmax.2/all/")
    assert (
        lines[1]
        .strip()
        .startswith("python tools/verify/sizes.py --target native --scale small --only")
    )


def test_names_are_listed_by_slices(monkeypatch: Any, capsys: Any) -> None:
    listed = []
    for part in ("0/2", "1/2", "0/1"):
        run(monkeypatch, "--list", "--only", "softmax.", "--slice", part)
        listed.append(capsys.readouterr().out.split())
    assert sorted(listed[0] + listed[1]) == sorted(listed[2])
    assert len(listed[0]) > 5 and len(listed[1]) > 5
    with pytest.raises(SystemExit, match="expected I/N with I below N"):
        run(monkeypatch, "--list", "--slice", "2/2")


def test_a_case_is_compiled_once_for_all_draws() -> None:
    runner = Runner(NATIVE, (1,))
    runner(problem(LINE, 0))
    module = runner.module
    runner(problem(LINE, 1))
    assert runner.module is module
