"""Files that are saved together: drafts, records of killed saves, locks, and what is refused."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import pytest

from runtime.files import atomic_saves as saves
from runtime.files import folder_locks
from runtime.files.atomic_saves import reading, save_files, saved_files, visible_names
from runtime.files.save_record import RECORD, TornSaveError, read_record
from tests.support.full_disk import files_of_at_most

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("a", "b", "sub/c")


def put(folder: Path, text: str, names: tuple[str, ...] = NAMES, removed=()) -> None:
    """Save files that all hold a text."""
    save_files(
        folder, {name: lambda stream: stream.write(text.encode()) for name in names}, removed
    )


def held(folder: Path) -> dict[str, str]:
    """What the files of a folder hold, read as a load reads them."""
    with reading(folder):
        return {
            path.relative_to(folder).as_posix(): path.read_text() for path in saved_files(folder)
        }


def everything(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


class Killed(BaseException):
    """Represents a kill: no cleanup runs."""


@pytest.fixture
def killed_save(tmp_path, monkeypatch):
    """A folder of old files, where a save of new ones was killed after it put one in place."""
    folder = tmp_path / "checkpoint"
    put(folder, "old")
    time.sleep(0.02)

    def stop(record) -> None:
        first = record.changes[0]
        record.source(first).replace(folder / first.name)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(saves, "_finish_started", stop)
        with pytest.raises(Killed):
            put(folder, "new")
    assert (folder / "a").read_text() == "new"
    assert (folder / "b").read_text() == "old"
    assert (folder / RECORD).exists()
    return folder


# ---- what a save leaves ----


def test_files_of_others_stay_and_no_file_of_ours_does(tmp_path):
    (tmp_path / "notes").write_text("mine")
    put(tmp_path, "old")
    put(tmp_path, "new", removed=["gone"])
    assert everything(tmp_path) == ["a", "b", "notes", "sub", "sub/c"]
    assert held(tmp_path) == dict.fromkeys(NAMES, "new") | {"notes": "mine"}


AT_EXIT = """
import atexit, sys
from pathlib import Path
from runtime.files.atomic_saves import save_files
files = {name: lambda stream: stream.write(b"late") for name in "abc"}
atexit.register(save_files, Path(sys.argv[1]), files)
"""


def test_a_program_may_save_at_its_end(tmp_path):
    command = [sys.executable, "-c", AT_EXIT, tmp_path]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    assert done.stderr == b""
    assert held(tmp_path) == dict.fromkeys("abc", "late")


def test_files_are_removed_together_with_the_save(tmp_path):
    put(tmp_path, "old")
    put(tmp_path, "new", ("all",), removed=["a", "b"])
    assert held(tmp_path) == {"all": "new", "sub/c": "old"}


def test_a_folder_may_be_the_working_directory_or_a_symbolic_link(tmp_path, monkeypatch):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    put(tmp_path / "link", "one")
    monkeypatch.chdir(real)
    put(Path(), "two")
    assert held(real) == dict.fromkeys(NAMES, "two")


def test_a_folder_may_be_a_mount_point():
    folder = Path("/dev/shm")
    if not os.path.ismount(folder):
        pytest.skip("there is no other file system")
    name = f"saved-{os.getpid()}"
    put(folder, "x", (name, f"{name}-2"))
    assert [(folder / each).read_text() for each in (name, f"{name}-2")] == ["x", "x"]
    for each in (name, f"{name}-2"):
        (folder / each).unlink()


# ---- after a kill ----


def test_a_load_finishes_a_save_that_was_killed(killed_save):
    assert held(killed_save) == dict.fromkeys(NAMES, "new")
    assert everything(killed_save) == ["a", "b", "sub", "sub/c"]


def test_so_does_a_copy_that_keeps_times(killed_save, tmp_path):
    subprocess.run(["cp", "-a", killed_save, tmp_path / "copy"], check=True)
    assert held(tmp_path / "copy") == dict.fromkeys(NAMES, "new")


def test_a_copy_without_times_is_rejected(killed_save, tmp_path):
    subprocess.run(["cp", "-r", killed_save, tmp_path / "copy"], check=True)
    with pytest.raises(TornSaveError, match="a save was interrupted"):
        held(tmp_path / "copy")


def test_the_next_save_of_other_files_finishes_it(killed_save):
    put(killed_save, "more", ("d", "e"))
    assert held(killed_save) == dict.fromkeys(NAMES, "new") | {"d": "more", "e": "more"}
    assert RECORD not in everything(killed_save)


def test_the_next_save_of_one_file_finishes_it(killed_save):
    put(killed_save, "more", ("b",))
    assert held(killed_save) == dict.fromkeys(NAMES, "new") | {"b": "more"}


def test_files_written_anew_by_others_are_taken(killed_save):
    for name in NAMES:
        (killed_save / name).write_text("1.8.5")
    assert held(killed_save) == dict.fromkeys(NAMES, "1.8.5")
    assert everything(killed_save) == ["a", "b", "sub", "sub/c"]
    put(killed_save, "next")
    assert everything(killed_save) == ["a", "b", "sub", "sub/c"]


def test_some_files_written_by_others_are_rejected_until_all_are_saved(killed_save):
    (killed_save / "b").write_text("by hand")
    message = (
        f"{killed_save}: a save was interrupted and its files were changed since .b.: they may"
    )
    with pytest.raises(TornSaveError, match=message):
        held(killed_save)
    with pytest.raises(TornSaveError, match=r"save all of them again, or .*, or remove .*record"):
        put(killed_save, "next", ("d", "e"))
    put(killed_save, "next", (*NAMES, "d"))
    assert held(killed_save) == dict.fromkeys((*NAMES, "d"), "next")
    assert visible_names(killed_save) == ["a", "b", "d", "sub"]
    assert not list(killed_save.glob(".*"))


def test_removing_the_record_takes_files_as_they_are(killed_save):
    (killed_save / "b").write_text("by hand")
    (killed_save / RECORD).unlink()
    assert held(killed_save) == {"a": "new", "b": "by hand", "sub/c": "old"}
    put(killed_save, "next")
    assert not list(killed_save.glob(".*"))


def test_lost_drafts_are_rejected(killed_save):
    shutil.rmtree(next(killed_save.glob(".saving-*")))
    with pytest.raises(TornSaveError, match=r"changed since \(b, sub/c\)"):
        held(killed_save)


def test_a_change_by_hand_after_a_whole_save_is_taken(tmp_path):
    put(tmp_path, "old")
    (tmp_path / "b").write_text("by hand")
    assert held(tmp_path)["b"] == "by hand"


def test_saves_killed_in_folders_inside_are_finished(killed_save):
    assert [path.name for path in saved_files(killed_save.parent)] == ["a", "b", "c"]
    assert not (killed_save / RECORD).exists()


# ---- records from strangers ----


@pytest.mark.parametrize(
    "change",
    [
        {"draft": "../elsewhere"},
        {"draft": "elsewhere"},
        {"inode": "1"},
        {"changes": [["../out", "0", None, [1, 1]]]},
        {"changes": [["/etc/passwd", "0", None, [1, 1]]]},
        {"changes": [["link/out", "0", None, [1, 1]]]},
        {"changes": [["a", "../0", None, [1, 1]]]},
        {"changes": [["a", "0", None, [1.5, 1]]]},
        {"changes": [["a", "0"]]},
        {"changes": 3},
    ],
)
def test_a_record_that_leads_out_of_the_folder_is_rejected(tmp_path, change):
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / ".saving-1").mkdir(parents=True)
    outside.mkdir()
    (folder / "link").symlink_to(outside)
    record = {"inode": 1, "draft": ".saving-1", "changes": []} | change
    (folder / RECORD).write_text(json.dumps(record))
    with pytest.raises(TornSaveError, match=r"is not a save record: .*; save into another folder"):
        read_record(folder)
    with pytest.raises(TornSaveError, match="is not a save record"):
        held(folder)


@pytest.mark.parametrize("text", ["", "[", "[]", "3", "{}", "[" * 100_000, "\xff"])
def test_a_file_that_is_no_record_is_rejected(tmp_path, text):
    (tmp_path / RECORD).write_bytes(text.encode("latin1"))
    with pytest.raises(TornSaveError, match=f"{RECORD} is not a save record"):
        held(tmp_path)


def test_drafts_behind_a_symbolic_link_are_rejected(killed_save, tmp_path):
    draft = next(killed_save.glob(".saving-*"))
    draft.rename(tmp_path / "outside")
    draft.symlink_to(tmp_path / "outside")
    with pytest.raises(TornSaveError, match="is not a draft folder"):
        held(killed_save)


# ---- what goes wrong while saving ----


def test_a_full_disk_names_the_file_and_leaves_the_old_ones(tmp_path):
    put(tmp_path, "old")
    with (
        pytest.raises(OSError, match="the previous save is intact") as caught,
        files_of_at_most(100),
    ):
        put(tmp_path, "long" * 1000)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / "a"))
    assert everything(tmp_path) == ["a", "b", "sub", "sub/c"]
    assert held(tmp_path) == dict.fromkeys(NAMES, "old")


def test_a_folder_that_takes_no_files_names_the_one_file(tmp_path, monkeypatch):
    def refused(**_: object) -> str:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / ".saving-abc"))

    monkeypatch.setattr(saves, "mkdtemp", refused)
    with pytest.raises(OSError, match=r"Read-only file system: '.*/a'$") as caught:
        put(tmp_path, "new", ("a",))
    assert caught.value.filename == str(tmp_path / "a")
    with pytest.raises(OSError, match="Read-only file system") as caught:
        put(tmp_path, "new")
    assert caught.value.filename == str(tmp_path)


def full_sync(handle: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_when_files_are_synced(tmp_path, monkeypatch):
    put(tmp_path, "old")
    monkeypatch.setattr(os, "fsync", full_sync)
    with pytest.raises(OSError, match="No space left on device; the previous save") as caught:
        put(tmp_path, "new")
    assert caught.value.filename == str(tmp_path)
    assert everything(tmp_path) == ["a", "b", "sub", "sub/c"]
    assert held(tmp_path) == dict.fromkeys(NAMES, "old")


def test_folders_made_for_a_save_that_fails_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full_sync)
    with pytest.raises(OSError, match="No space left"):
        put(tmp_path / "new" / "folder", "new")
    assert everything(tmp_path) == []


AS_NOBODY = """
import os, sys
from pathlib import Path
from runtime.files.atomic_saves import save_files, reading
os.setgid(65534), os.setuid(65534)
try:
    if sys.argv[1] == "save":
        save_files(Path(sys.argv[2]), {"a": lambda stream: stream.write(b"new")})
    with reading(Path(sys.argv[2])):
        print(Path(sys.argv[2], "a").read_text())
except Exception as error:
    print(type(error).__name__, error)
"""


def as_nobody(what: str, folder: Path) -> str:
    """What a user who may not write to a folder sees there."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, what, folder], capture_output=True, text=True,
        check=False, cwd=ROOT,
    )  # fmt: skip
    if "PermissionError" in done.stderr or "ModuleNotFoundError" in done.stderr:
        pytest.skip("another user may not read the code")
    return done.stdout.strip()


@pytest.fixture
def readable():
    """A folder that every user may read; pytest's own are closed by each session that begins."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_folder_that_may_only_be_read(readable):
    folder = readable / "checkpoint"
    put(folder, "old")
    result = as_nobody("save", folder)
    assert result.startswith("PermissionError [Errno 13] Permission denied; the previous save is")
    assert str(folder) in result
    assert as_nobody("load", folder) == "old"


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_killed_save_in_a_folder_that_may_only_be_read(killed_save, readable):
    folder = readable / "checkpoint"
    subprocess.run(["cp", "-a", killed_save, folder], check=True)
    result = as_nobody("load", folder)
    assert result.startswith(f"TornSaveError the save into {folder} was interrupted and cannot")
    assert "load it once where you may write" in result


def test_unreplaceable_files_are_rejected_first(tmp_path):
    put(tmp_path, "old")
    (tmp_path / "c").mkdir()
    with pytest.raises(IsADirectoryError, match=f"{tmp_path}/c"):
        put(tmp_path, "new", ("a", "c"))
    with pytest.raises(OSError, match=f"{tmp_path}/a"):
        put(tmp_path, "new", ("b", "a/c"))
    (tmp_path / "outside").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"'link/d' is in .*outside, .* by a symbolic link"):
        put(tmp_path / "folder", "new", ("b", "link/d"))
    assert held(tmp_path) == dict.fromkeys(NAMES, "old")


# ---- several processes ----


def save_often(folder: Path, text: str, times: int) -> None:
    for _ in range(times):
        put(folder, text, tuple("abcdef"))


def test_saves_of_two_processes_do_not_mix(tmp_path):
    put(tmp_path, "x", tuple("abcdef"))
    context = get_context("fork")
    both = [context.Process(target=save_often, args=(tmp_path, text, 15)) for text in "yz"]
    for each in both:
        each.start()
    seen = []
    while any(each.is_alive() for each in both):
        seen.append(set(held(tmp_path).values()))
    assert [each.exitcode for each in both] == [0, 0]
    assert all(len(values) == 1 for values in seen)
    assert held(tmp_path) in [dict.fromkeys("abcdef", text) for text in "yz"]
    assert everything(tmp_path) == list("abcdef")


def test_drafts_of_a_running_save_are_not_removed(tmp_path):
    started, go_on = Event(), Event()

    def slow(stream) -> None:
        started.set()
        go_on.wait(10)
        stream.write(b"slow")

    thread = Thread(target=save_files, args=(tmp_path, {"a": slow, "b": slow}))
    thread.start()
    started.wait(10)
    put(tmp_path, "quick")
    assert len(list(tmp_path.glob(".saving-*"))) == 1
    go_on.set()
    thread.join()
    assert held(tmp_path) == {"a": "slow", "b": "slow", "sub/c": "quick"}
    assert not list(tmp_path.glob(".*"))


def test_drafts_of_killed_saves_are_removed_by_the_next(tmp_path):
    (tmp_path / ".saving-dead").mkdir()
    (tmp_path / ".saving-dead" / "0").write_text("half")
    put(tmp_path, "new", ("a",))
    assert everything(tmp_path) == ["a"]


def test_a_folder_that_others_keep_is_an_error_in_time(tmp_path, monkeypatch):
    put(tmp_path, "old")
    monkeypatch.setattr(folder_locks, "PATIENCE", 0.05)
    with reading(tmp_path), pytest.raises(TimeoutError, match=f"has locked {tmp_path}"):
        put(tmp_path, "new")
    assert held(tmp_path) == dict.fromkeys(NAMES, "old")


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(folder_locks.flock, "flock", none)
    put(tmp_path, "old")
    put(tmp_path, "new")
    assert held(tmp_path) == dict.fromkeys(NAMES, "new")
    assert everything(tmp_path) == ["a", "b", "sub", "sub/c"]
