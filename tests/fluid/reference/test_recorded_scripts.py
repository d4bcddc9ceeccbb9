"""Scripts of release 1.8 print the numbers that Paddle 1.8.5 prints: losses, mostly.

The last line that a script prints is a list of numbers; `tests/golden/scripts` has those of the
reference. Parameters are set by the scripts, so that both sides begin alike.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(__file__).parents[1] / "scripts"
RECORDED = sorted((ROOT / "tests" / "golden" / "scripts").glob("*.json"))
ARGUMENTS = {"ocr": (["--cpu"], ["--use_gpu", "True"])}
"""What `fluid run` is given before the script, and what the script is."""


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_script_prints_the_numbers_of_the_reference(path: Path, tmp_path: Path) -> None:
    ours, its = ARGUMENTS.get(path.stem, ([], []))
    command = [sys.executable, "-m", "fluid", "run", *ours, str(SCRIPTS / f"{path.stem}.py"), *its]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout.splitlines()[-1])
    assert numbers == pytest.approx(json.loads(path.read_text()), rel=2e-4, abs=2e-5)
