"""Native steps compared with the reference as they run: kernels broken on purpose are named."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.codegen.native.host import detected
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.debugging.step_checks import differing, explained
from compiler.errors import WrongResult

pytestmark = [
    pytest.mark.skipif(detected() is None, reason="no native code for this CPU"),
    pytest.mark.usefixtures("fresh_programs"),
]

LOADS = (
    re.compile(r"^  (%\S+) = load <(\d+) x float>, ptr (%\S+), align 4$", re.MULTILINE),
    re.compile(
        r"^  (%\S+) = call <(\d+) x float> @llvm.masked.load\S+?\(ptr (%\S+),.*$", re.MULTILINE
    ),
)
"""Loads of vectors of floats: the result, the number of elements and the address."""
ROWS = np.random.default_rng(0).standard_normal((40, 70), "f4")


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLUID_CHECK", "2")
    monkeypatch.setenv("FLUID_TARGET", "native")
    monkeypatch.setenv("FLUID_CACHE", str(tmp_path))


def run(build: Callable[[Any], Any], feed: np.ndarray = ROWS) -> list[np.ndarray]:
    """Run a program once over the feed x."""
    x = fluid.layers.data("x", list(feed.shape[1:]))
    results = build(x)
    exe = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    return exe.run(feed={"x": feed}, fetch_list=results)


def breaking(monkeypatch: pytest.MonkeyPatch, edit: Callable[[str], str]) -> None:
    """Edit the text of every kernel."""
    intact = NativeKernel.text
    monkeypatch.setattr(NativeKernel, "text", lambda kernel: edit(intact(kernel)))


def one_lane(text: str) -> str:
    """The text of a kernel whose vectors hold their first element in all lanes."""

    def first(found: re.Match[str]) -> str:
        name, lanes, pointer = found.groups()
        vector = f"<{lanes} x float>"
        return (
            f"  {name}.s = load float, ptr {pointer}, align 4\n"
            f"  {name}.i = insertelement {vector} poison, float {name}.s, i32 0\n"
            f"  {name} = shufflevector {vector} {name}.i, {vector} poison, "
            f"<{lanes} x i32> zeroinitializer"
        )

    for load in LOADS:
        text = load.sub(first, text)
    return text


def test_one_element_in_all_lanes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    breaking(monkeypatch, one_lane)
    with pytest.raises(WrongResult) as raised:
        run(lambda x: [fluid.layers.tanh(x)])
    text = str(raised.value)
    assert re.match(
        r"tanh: kernel tanh\w* computes tanh_0.tmp_0\S*\[0, 1\] = \S+, expected \S+; "
        r"\d+ of 2800 elements differ, by up to \S+\n",
        text,
    )
    assert "tanh(x)" in raised.value.op
    assert "test_step_checks.py" in raised.value.source


@pytest.mark.parametrize(
    ("build", "op"),
    [
        (lambda x: [fluid.layers.relu(fluid.layers.scale(x, 3.0))], "scale+relu"),
        (lambda x: [fluid.layers.fc(x, 30, act="relu")], "mul+elementwise_add+relu"),
        (lambda x: [fluid.layers.softmax(x)], "softmax"),
        (lambda x: [fluid.layers.reduce_sum(x, 0)], "reduce_sum"),
    ],
)
def test_a_dropped_last_part_is_named(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[Any], Any], op: str
) -> None:
    intact = NativeModuleWriter.command

    def command(writer: NativeModuleWriter, kernel: NativeKernel, arguments: Any) -> None:
        if not kernel.name.startswith(("fill", "pack", "uniform")):
            kernel = replace(kernel, units=kernel.units - 1)
        intact(writer, kernel, arguments)

    monkeypatch.setattr(NativeModuleWriter, "command", command)
    with pytest.raises(WrongResult, match=re.escape(op)):
        run(build)


def test_updates_in_place_are_compared_with_copies_of_their_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def train(x: Any) -> list[Any]:
        loss = fluid.layers.mean(fluid.layers.fc(x, 3, bias_attr=False))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        return [loss]

    run(train)
    breaking(monkeypatch, lambda text: text.replace("fsub", "fadd"))
    new = fluid.program_guard(fluid.Program(), fluid.Program())
    with new, pytest.raises(WrongResult, match=r"momentum: .* computes fc_\d+\.w_0") as raised:
        run(train)
    assert "momentum(" in raised.value.op


def test_the_summary_is_logged_once(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "fluid.check")
    x = fluid.layers.data("x", [70])
    y = fluid.layers.dropout(fluid.layers.softmax(x), 0.5)
    exe = fluid.Executor(fluid.CPUPlace())
    for _ in range(2):
        exe.run(feed={"x": ROWS}, fetch_list=[y])
    (line,) = caplog.messages
    assert re.match(r"checked \d native steps of program 'main': all agree, the largest", line)
    assert "not compared: random_keys (in NumPy)" in line
    assert not capsys.readouterr().out


def test_random_numbers_without_a_key_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fluid.check")
    run(lambda x: [x + fluid.layers.gaussian_random([70], seed=3)])
    assert "not compared: gaussian_random (in NumPy)" in caplog.messages[-1]


@pytest.mark.parametrize(
    "build",
    [
        lambda x: [fluid.layers.reduce_sum(x)],
        lambda x: [fluid.layers.mean(x)],
        lambda x: [fluid.layers.floor(x * 3.0)],
        lambda x: [fluid.layers.cast(x * 0.1 > x * 0.1 - 1e-9, "int64")],
    ],
)
def test_what_rounding_decides_is_no_error(build: Callable[[Any], Any]) -> None:
    cancelling = np.concatenate([ROWS, -ROWS[::-1]])
    run(build, cancelling)


def test_nan_and_infinity_equal_themselves() -> None:
    got = np.array([np.nan, np.inf, 1.0, np.nan], "f4")
    wrong, _ = differing(got, np.array([np.nan, 1e39, 1.0 + 1e-7, 2.0]), 1e-5)
    assert wrong.tolist() == [False, False, False, True]


def test_integers_are_right_if_any_rounding_gives_them() -> None:
    got, expected = np.array([3, 4, 5]), np.array([3, 3, 3])
    assert explained(got, expected, [np.array([3, 4, 3])], 0.0).tolist() == [True, True, False]
