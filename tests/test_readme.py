"""The README's examples run as they stand, and what it names is there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def run(source: str, folder: Path) -> str:
    """Run `source` in a process of its own inside `folder`; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"a README example failed:\n{source}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("index", range(len(EXAMPLES)))
def test_example_runs(index: int, tmp_path: Path) -> None:
    assert run(EXAMPLES[index], tmp_path).strip(), "a README example prints something"


def test_first_example_learns(tmp_path: Path) -> None:
    losses = [float(loss) for loss in re.findall(r"loss\s+(\S+)", run(EXAMPLES[0], tmp_path))]
    assert len(losses) > 2
    assert losses[-1] < 1e-3 * losses[0]


def test_commands_are_makefile_targets() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)\b", re.sub(r"(?s)```python.*?```", "", README)))
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {"demo", "test"} <= named <= set(targets)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_links_lead_to_files(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text("utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
