"""`fluid shell` runs a script of shell whose Python scripts import paddle."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fluid.cli.main import main

ROOT = Path(__file__).resolve().parents[4]


def shell(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fluid", "shell", *arguments], cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip


def test_a_script_of_shell_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "place.py").write_text("import paddle.fluid as fluid\nprint(fluid.CUDAPlace(0))\n")
    (tmp_path / "train.sh").write_text('python place.py | sed "s/^/$1 /"\nexit 7\n')
    done = shell("--cpu", "--", "sh", "train.sh", "on", folder=tmp_path)
    assert (done.returncode, done.stdout) == (7, "on CPUPlace\n"), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place.py", "train.sh"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "expected a command, such as"), (["--", "no-such-command"], "there is no command 'no-")],
)
def test_errors_of_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str],
    message: str,
) -> None:  # fmt: skip
    for name in ("PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    for name in ("OPTIONS", "PYTHON", "INTERPRETER"):
        monkeypatch.setenv(f"FLUID_RUN_{name}", "")
    assert main(["shell", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_python_without_the_environment_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "child.sh").write_text('env -i PATH="$PATH" python -c "import paddle"\n')
    done = shell("--", "sh", "child.sh", folder=tmp_path)
    assert done.returncode == 127 and "keep FLUID_RUN_PYTHON" in done.stderr
