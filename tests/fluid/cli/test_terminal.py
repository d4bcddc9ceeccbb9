"""What commands print."""

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from fluid.cli.terminal import one_line_warnings, unbuffer_output

ROOT = Path(__file__).parents[3]


def test_unbuffered_output_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdout", "stderr"):
        stream = io.TextIOWrapper((tmp_path / name).open("wb"), "utf-8", "replace")
        monkeypatch.setattr(sys, name, stream)
        monkeypatch.setattr(sys, f"__{name}__", stream)
    print("before", end="")
    assert (tmp_path / "stdout").read_text() == ""
    unbuffer_output()
    print(", after", end="")
    assert (tmp_path / "stdout").read_text("utf-8") == "before, after"
    assert sys.stdout is sys.__stdout__ and sys.stdout.errors == "replace"
    sys.stdout.close()
    sys.stderr.close()


MISUSED = [
    ("doctor >&-", 0, ""),
    ("--version 2>&-", 0, ""),
    ("run train.py >&-", 0, ""),
    ("doctor >/dev/full", 2, "fluid doctor: cannot print: No space left on device\n"),
    ("--version >/dev/full", 2, "fluid: cannot print: No space left on device\n"),
    ("infer --help >/dev/full", 2, "fluid: cannot print: No space left on device\n"),
    ("run train.py >/dev/full", 1, "fluid run: cannot print: No space left on device\n"),
    ("run train.py | true", 0, ""),
    ("run long.py | head -1; exit ${PIPESTATUS[0]}", 141, ""),
    ("run -u long.py | head -1; exit ${PIPESTATUS[0]}", 141, ""),
    ("run exits.py | true; exit ${PIPESTATUS[0]}", 141, ""),
    ("profile long.py | head -1; exit ${PIPESTATUS[0]}", 141, ""),
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="streams as Linux has them")
@pytest.mark.parametrize(("words", "code", "errors"), MISUSED)
def test_streams_that_are_closed_or_full(
    words: str, code: int, errors: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import time\nprint('x')\ntime.sleep(0.1)\n")
    (tmp_path / "long.py").write_text("for number in range(100_000):\n    print(number)\n")
    (tmp_path / "exits.py").write_text("import time\ntime.sleep(0.1)\nprint('x')\nexit(3)\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m fluid {words}"], cwd=tmp_path, env=environment,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, errors)


def test_warnings_are_one_line_without_lines_of_ours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings(), one_line_warnings():
        warnings.simplefilter("always")
        warnings.warn("llvmlite is not installed", stacklevel=1)
    assert capsys.readouterr().err == "fluid: warning: llvmlite is not installed\n"


def test_a_broken_pipe_of_the_script_itself_is_an_error(tmp_path: Path) -> None:
    source = "import os\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')\n"
    (tmp_path / "train.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "fluid", "run", "train.py"], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert 'train.py", line 4' in done.stderr
    assert "BrokenPipeError" in done.stderr
