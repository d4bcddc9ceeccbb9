"""Saves that are killed at every step: loads find the old version or the new one, never both."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import fluid
from fluid.cli import main as cli
from tools.verify.support.save_kinds import KINDS, leftovers, save, versioned

ROOT = Path(__file__).resolve().parents[3]
MEMORY = Path("/dev/shm")
"""A disk that takes no time to sync, where there is one."""


def test_a_save_killed_at_any_step_is_old_or_new() -> None:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(dir=place) as space:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", ROOT / "tests/fluid/saving/kill_saves.py", space],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert set(outcomes) == {kind.name for kind in KINDS}
    for name, found in outcomes.items():
        came = found["came"]
        assert set(came) <= {"old", "new", "next save torn"}, (name, came)
        assert came["next save torn"] == 0, name
        assert min(came["old"], came["new"]) > 4, (name, came)
        assert found["left"] == [], name


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """What a save left that was killed while it wrote: a folder of unfinished files."""
    folder = tmp_path / ".saving-killed"
    folder.mkdir()
    for name in ("0", "draft", "weight_0"):
        (folder / name).write_bytes(b"half a ten")
    return folder


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_drafts_are_never_read_and_removed_by_the_next_save(kind, draft: Path) -> None:
    model, folder = versioned(1, 4, 8), draft.parent
    save(kind, model, folder)
    assert leftovers(folder) == []
    draft.mkdir()
    (draft / "0").write_bytes(b"half a ten")
    assert kind.load(model, folder) == {1.0}


def test_a_folder_with_a_draft_is_loaded_by_name(tmp_path: Path, draft: Path) -> None:
    model = versioned(1, 4, 8)
    save(KINDS[0], model, tmp_path / "saved")
    draft.rename(tmp_path / "saved" / draft.name)
    with fluid.scope_guard(fluid.Scope()):
        fluid.load(model.program, str(tmp_path / "saved"), model.executor)
        result = fluid.global_scope().find_var("moment_1").get_tensor()
        assert np.asarray(result).tolist() == [1.0] * 8


def test_commands_read_no_drafts(tmp_path: Path, draft: Path, capsys) -> None:
    model, folder = versioned(1, 4, 8), tmp_path / "model"
    save(KINDS[3], model, folder)
    np.save(tmp_path / "x.npy", np.ones(8, "float32"))
    draft.rename(folder / draft.name)
    commands = [
        ["convert", folder, tmp_path / "converted"],
        ["infer", folder, "--input", f"x={tmp_path / 'x.npy'}"],
        ["weights", folder],
        ["inspect", folder],
    ]
    for command in commands:
        assert cli.main([*map(str, command)]) == 0, capsys.readouterr().err
    assert leftovers(tmp_path / "converted") == []
    printed = capsys.readouterr().out
    assert "4 parameters" in printed
    assert ".saving" not in printed
    assert cli.main(["convert", str(folder), str(folder), "--force"]) == 0
    assert leftovers(folder) == []
