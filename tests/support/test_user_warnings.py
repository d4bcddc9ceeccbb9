"""Warnings point to lines of users."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from compiler.support.user_warnings import warn_user

ROOT = Path(__file__).parents[2]


def test_the_line_is_the_callers():
    with pytest.warns(UserWarning, match="text") as caught:
        warn_user("text")
    assert caught[0].filename == __file__


def test_frames_of_our_packages_are_skipped_and_the_text_is_shown_once(tmp_path):
    source = "\n".join([
        "from compiler.support.private_folders import is_private",
        "from compiler.support.settings.fluid import FLUID_CACHE",
        "from pathlib import Path",
        "for kind in ('modules', 'native'):",
        "    is_private(Path(FLUID_CACHE.read(), kind), FLUID_CACHE)",
    ])  # fmt: skip
    (tmp_path / "train.py").write_text(source)
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(ROOT), "FLUID_CACHE": "file"},
    )  # fmt: skip
    assert done.stderr.splitlines() == [
        f"{tmp_path}/train.py:5: UserWarning: compiled code is not kept, as FLUID_CACHE=file cannot "
        "be used: Not a directory",
        "  is_private(Path(FLUID_CACHE.read(), kind), FLUID_CACHE)",
    ]


def test_a_home_that_cannot_be_written_to_is_no_mistake(tmp_path, monkeypatch):
    from compiler.support.private_folders import is_private
    from compiler.support.settings.fluid import FLUID_CACHE

    monkeypatch.delenv("FLUID_CACHE", raising=False)
    (tmp_path / "file").write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not is_private(tmp_path / "file" / "modules", FLUID_CACHE)
