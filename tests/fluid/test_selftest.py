"""`fluid selftest`: a short run passes, and a kernel that is broken on purpose is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compiler.codegen.native.host import detected, supported
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.module_writer import NativeModuleWriter
from fluid.cli import main as cli
from fluid.cli.commands.selftest import NAMES
from fluid.selftest import command
from fluid.selftest.command import ALL
from fluid.selftest.trial import TrialSetting, run_case

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")


def selftest(*arguments: str) -> int:
    return cli.main(["selftest", *arguments])


@pytest.mark.parametrize("family", NAMES)
def test_the_first_case_of_a_family_agrees(family: str) -> None:
    (outcome,) = run_case(ALL[family][0], [TrialSetting(next(iter(supported())), 1, False)])
    assert (outcome.failure, outcome.steps > 0) == ("", True)


def test_all_families_are_choices() -> None:
    assert tuple(ALL) == NAMES
    for name, cases in ALL.items():
        assert len({case.name for case in cases}) == len(cases), name


def test_a_family_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert selftest("--family", "casts", "--case", "to int32", "--sizes", "small") == 0
    printed = capsys.readouterr()
    head, line, *_, counts = printed.out.splitlines()
    assert head.startswith("native code for ")
    assert line.split()[0] == "casts"
    assert line.endswith("  ok")
    assert "none failed" in counts
    assert not printed.err


def test_a_broken_kernel_fails_its_family(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    intact = NativeModuleWriter.command

    def shorter(frame: NativeModuleWriter, kernel: NativeKernel, arguments: Any) -> None:
        intact(frame, replace(kernel, units=kernel.units - 1), arguments)

    monkeypatch.setattr(NativeModuleWriter, "command", shorter)
    chosen = ("--family", "losses", "--case", "softmax", "--sizes", "small", "--threads", "1")
    assert selftest(*chosen, "--cpu", "avx2") == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert "softmax of [6, 37], avx2, 1 thread, small sizes with lowered thresholds" in printed
    assert "WrongResult: softmax: kernel softmax" in printed
    repeat = "fluid selftest --family losses --case softmax --cpu avx2 --threads 1 --sizes small"
    assert f"repeat: {repeat}" in printed


def test_an_interrupt_says_what_was_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_case", interrupted)
    assert selftest("--family", "casts") == 130
    assert "stopped after 0 cases of 1 family in 0 s, none failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--case", "no such"), "there is no case 'no such'"), (("--cpu", "z80"), "this CPU runs: ")],
)
def test_unknown_choices_are_named(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert selftest(*arguments) == 2
    assert message in capsys.readouterr().err
