"""Scripts of shell under `fluid shell` print the numbers that they print with Paddle 1.8.5.

They start Python scripts, which start processes that import paddle: pipe commands of a dataset,
processes of the launcher, `multiprocessing` with spawn. The last line is a list of numbers;
`tests/golden/shell_scripts` has those of the reference.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(__file__).parents[1] / "scripts" / "shell"
GOLDEN = ROOT / "tests" / "golden" / "shell_scripts"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clicks", "shards"])
def test_script_of_shell_prints_the_numbers_of_the_reference(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fluid", "shell", "--", "bash", str(SCRIPTS / f"{name}.sh")],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout.splitlines()[-1])
    recorded = json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))
    assert numbers == pytest.approx(recorded, rel=2e-4, abs=2e-5)
