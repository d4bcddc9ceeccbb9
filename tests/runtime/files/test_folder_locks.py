"""Locks on folders, as Unix and Windows have them, and systems without any."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.files import folder_locks
from runtime.files.folder_locks import lock_if_free, locked
from tests.another_system import windows_locks

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys, time
from pathlib import Path
from runtime.files import folder_locks
if sys.argv[2] == "windows":
    from tests.another_system import windows_locks
    folder_locks.flock, folder_locks.locking = None, windows_locks
with folder_locks.locked(Path(sys.argv[1]), exclusive=sys.argv[3] == "exclusive"):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=["unix", "windows"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The locks of a system; its temporary folder is not that of the test."""
    monkeypatch.setattr(folder_locks, "PATIENCE", 0.02)
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    if request.param == "windows":
        monkeypatch.setattr(folder_locks, "flock", None)
        monkeypatch.setattr(folder_locks, "locking", windows_locks)
    return str(request.param)


def is_free(folder: Path) -> bool:
    """Whether a folder can be locked exclusively; it is unlocked again."""
    handle = lock_if_free(folder)
    if handle is not None:
        os.close(handle)
    return handle is not None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def test_readers_share_a_folder(system: str, folder: Path) -> None:
    with locked(folder, exclusive=False), locked(folder, exclusive=False):
        assert not is_free(folder)


def test_a_writer_excludes_all(system: str, folder: Path) -> None:
    with locked(folder, exclusive=True):
        for exclusive in (False, True):
            with (
                pytest.raises(TimeoutError, match="has locked"),
                locked(folder, exclusive=exclusive),
            ):
                pass
    with locked(folder, exclusive=True):
        pass


def test_nothing_is_left_in_the_folder(system: str, folder: Path) -> None:
    with locked(folder, exclusive=True):
        assert list(folder.iterdir()) == []


def test_folder_lock_is_shared_by_all_paths(system: str, folder: Path) -> None:
    (folder.parent / "link").symlink_to(folder)
    with locked(folder.parent / "link", exclusive=True):
        assert not is_free(folder)
        assert is_free(folder.parent)


def test_a_missing_folder_has_none(system: str, folder: Path) -> None:
    assert not is_free(folder / "missing")
    with locked(folder / "missing", exclusive=True):
        assert not (folder / "missing").exists()


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
def test_a_killed_process_gives_its_lock_back(system: str, folder: Path, kind: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), system, kind],
        env=environment, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        assert not is_free(folder)
        process.send_signal(signal.SIGKILL)
    assert is_free(folder)


def test_a_system_without_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_locks, "flock", None)
    monkeypatch.setattr(folder_locks, "locking", None)
    with locked(folder, exclusive=True), locked(folder, exclusive=True):
        assert is_free(folder)
