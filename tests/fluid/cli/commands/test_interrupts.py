"""Ctrl-C while the command `fluid` is being imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fluid.cli.commands import interrupts

ROOT = Path(__file__).resolve().parents[4]

INTERRUPTS_AN_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


def ended(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python; Ctrl-C is pressed when it imports NumPy."""
    (folder / "sitecustomize.py").write_text(INTERRUPTS_AN_IMPORT)
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False
    )


def test_a_command_ends_without_a_traceback(tmp_path: Path) -> None:
    done = ended(["-m", "fluid", "run", "x.py"], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (interrupts.INTERRUPTED, "", "")


def test_a_script_has_its_keyboard_interrupt(tmp_path: Path) -> None:
    done = ended(["-c", "import fluid"], tmp_path)
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    ("argv", "words", "is_command"),
    [
        (["/usr/bin/fluid", "run"], ["python", "/usr/bin/fluid", "run"], True),
        (["-m", "infer"], ["python", "-m", "fluid", "infer"], True),
        (["-m"], ["python", "-mfluid"], True),
        (["-m"], ["python", "-m", "pytest", "-m", "fluid"], False),
        (["train.py"], ["python", "train.py"], False),
        ([""], ["python"], False),
    ],
)
def test_only_the_command_is_changed(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], words: list[str], is_command: bool
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", words)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupts.exit_on_interrupts()
        assert (signal.getsignal(signal.SIGINT) is not signal.default_int_handler) == is_command
        interrupts.raise_interrupts()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
