"""Atomic saves of several files: after a kill at any moment a load finds all old or all new files.

New files are written as drafts into a folder inside the target folder, so that a rename works
wherever that is: a mount point, the target of a symbolic link, the working directory. When all are
synced to disk, the record of the save (`save_record.py`) is created by one rename: this commits the
save. Then each draft replaces its file, and the record is removed. A save or load that finds the
record of a killed save first finishes it. Other files in the folder are untouched, and no temporary
file remains when a save is done.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from tempfile import mkdtemp
from typing import NoReturn

from runtime.files.folder_locks import lock_if_free, locked
from runtime.files.save_record import (
    DRAFTS,
    RECORD,
    Change,
    Location,
    SaveRecord,
    TornSaveError,
    expect_inside,
    has_record,
    read_record,
    stamp,
)

Writer = Callable[[BufferedIOBase], object]
"""Writes the content of a file to an open stream."""

_SYNCED_AT_ONCE = 16
"""Number of threads that sync files; a disk commits simultaneous requests together."""

_OPENED_TO_SYNC = os.O_RDWR if os.name == "nt" else os.O_RDONLY
"""Windows flushes only what is open for writing."""

_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)
"""Error numbers of file systems that cannot sync folders."""


def save_files(folder: Path, files: Mapping[str, Writer], removed: Iterable[str] = ()) -> None:
    """Atomically write files into a folder and remove others from it.

    Names are relative to the folder; missing folders are created. The save is on disk when this
    returns. Drafts left by killed saves are removed. If several processes save concurrently, the
    last one wins as a whole. Raises OSError with the path if the disk is full or the folder
    read-only, TornSaveError if an interrupted save's files were changed by others and this save
    does not replace them, TimeoutError if another process locks the folder for too long, and what a
    writer raises; then the files are unchanged and no draft remains.
    """
    created: list[Path] = []
    is_saved = any((folder / name).exists() for name in files)
    subject = folder.joinpath(*files) if len(files) == 1 else folder
    try:
        with _reporting(subject, is_saved):
            for parent in sorted({(folder / name).parent for name in files} | {folder}):
                created += _make(parent)
        with _draft(folder, subject, is_saved) as draft:
            _write(draft, folder, files)
            draft.commit(list(files), [name for name in removed if name not in files])
    except BaseException:
        for place in reversed(created):
            with suppress(OSError):
                place.rmdir()
        raise
    _sync({place.parent for place in created})


@contextmanager
def reading(folder: Path) -> Generator[None]:
    """Lock a folder for reading: no save changes its files, and a killed save is finished first.

    Raises TornSaveError if a save was interrupted and its files were changed since, or it cannot be
    finished; TimeoutError if another process locks the folder for too long.
    """
    while True:
        with locked(folder, exclusive=False):
            if not has_record(folder):
                yield
                return
        _finish_interrupted(folder)


def saved_files(folder: Path) -> list[Path]:
    """The files in a folder and its subfolders, sorted, without the drafts of killed saves.

    Killed saves in subfolders are finished first; raises as `reading` does.
    """
    for record in sorted(folder.rglob(RECORD)):
        if not _is_draft(record.relative_to(folder)):
            _finish_interrupted(record.parent)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not _is_draft(path.relative_to(folder))]


def visible_names(folder: Path) -> list[str]:
    """The names in a folder, sorted, without the drafts of killed saves."""
    return sorted(path.name for path in folder.iterdir() if not _is_draft(Path(path.name)))


def _is_draft(path: Path) -> bool:
    return any(part.startswith(DRAFTS) for part in path.parts)


# ---- drafts ----


class _Draft:
    """A folder of new files, locked by the process that writes them until it exits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts = False
        self.path = Path(mkdtemp(prefix=DRAFTS, dir=folder))
        self.handle = lock_if_free(self.path)

    def close(self) -> None:
        """Remove what remains of it, unless it is committed: then the next load needs it."""
        if not self.counts or not has_record(self.folder):
            shutil.rmtree(self.path, ignore_errors=True)
        if self.handle is not None:
            os.close(self.handle)

    def commit(self, names: Sequence[str], removed: Sequence[str]) -> None:
        """Commit the drafts, which are numbered in the order of `names`, and move them into
        place.
        """
        folder = self.folder
        with locked(folder, exclusive=True):
            with _reporting(folder):
                replaces = _finish_unless_replaced(folder, {*names, *removed})
                if len(names) == 1 and not removed and not replaces:
                    self._replace_one(names[0])
                    return
                record = self._record(names, removed)
                self._start(record)
            _finish_started(record)
            self.counts = False
            if replaces:
                _remove_drafts(folder)

    def _replace_one(self, name: str) -> None:
        target = self.folder / name
        (self.path / "0").replace(target)
        _sync([target.parent])

    def _start(self, record: SaveRecord) -> None:
        """Write the record, which commits the save."""
        record.write(self.path / RECORD)
        _sync([self.path / RECORD, self.path])
        self.counts = True  # also if an interrupt hits the rename
        (self.path / RECORD).replace(self.folder / RECORD)

    def _record(self, names: Sequence[str], removed: Sequence[str]) -> SaveRecord:
        folder = self.folder
        changes = [
            Change(name, str(index), stamp(folder / name), stamp(self.path / str(index)))
            for index, name in enumerate(names)
        ]
        changes += [Change(name, "", stamp(folder / name), None) for name in removed]
        return SaveRecord(folder, folder.stat().st_ino, self.path.name, changes)


@contextmanager
def _draft(folder: Path, subject: Path, is_saved: bool) -> Generator[_Draft]:
    """Create an empty draft in a folder; those of killed saves are removed. Errors name the
    subject, which an earlier save may have written.
    """
    with locked(folder, exclusive=True), _reporting(subject, is_saved):
        _remove_drafts(folder)
        draft = _Draft(folder)
    try:
        yield draft
    finally:
        draft.close()


def _remove_drafts(folder: Path) -> None:
    """Remove the drafts of ended processes, except those that the record of a killed save needs."""
    with suppress(TornSaveError):
        _finish_interrupted_here(folder)
    if has_record(folder):
        return
    for path in folder.glob(f"{DRAFTS}*"):
        handle = lock_if_free(path)
        if handle is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def _write(draft: _Draft, folder: Path, files: Mapping[str, Writer]) -> None:
    for index, (name, write) in enumerate(files.items()):
        with _reporting(folder / name):
            _expect_replaceable(folder, name)
            with (draft.path / str(index)).open("xb") as stream:
                write(stream)
    with _reporting(folder):
        _sync([draft.path / str(index) for index in range(len(files))])


def _expect_replaceable(folder: Path, name: str) -> None:
    """Raise OSError unless a rename will be able to put a draft there."""
    target = folder / name
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(target))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target.parent))
    if target.parent.stat().st_dev != folder.stat().st_dev:
        raise OSError(errno.EXDEV, f"it is on another disk than {folder}", str(target.parent))
    try:
        expect_inside(folder, name)
    except ValueError as error:
        raise OSError(errno.EXDEV, str(error), str(target)) from error


def _make(folder: Path) -> list[Path]:
    """Create a folder and its parents; return those that were created, outermost first."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]


def _sync(paths: Iterable[Path]) -> None:
    """Flush files and folders to disk."""
    files = list(paths)
    if len(files) == 1:
        _sync_one(files[0])
        return
    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as pool:
        try:
            done = pool.map(_sync_one, files)
        except RuntimeError:  # the interpreter is shutting down and starts no threads
            done = map(_sync_one, files)
        for _ in done:
            pass


def _sync_one(path: Path) -> None:
    try:
        handle = os.open(path, _OPENED_TO_SYNC)
    except PermissionError:  # a folder that may be written to, but not listed; any on Windows
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)


@contextmanager
def _reporting(path: Path, is_saved: bool | None = None) -> Generator[None]:
    """Replace the draft's path by the target path in errors of the operating system.

    `is_saved` says whether there is an earlier save of it, by default whether the path exists.
    """
    try:
        yield
    except OSError as error:
        filename = str(error.filename or "")
        if error.errno is None or (filename and DRAFTS not in filename):
            raise
        intact = "; the previous save is intact" * (path.exists() if is_saved is None else is_saved)
        text = f"{error.strerror}{intact}"
        raise OSError(error.errno, text, str(path)) from error


# ---- records ----


def _finish_interrupted(folder: Path) -> None:
    with locked(folder, exclusive=True):
        try:
            _finish_interrupted_here(folder)
        except OSError as error:
            hint = "load it once where you may write, which moves the files into place"
            problem = f"the save into {folder} was interrupted and cannot be finished: {error}"
            raise TornSaveError(f"{problem}; {hint}") from error


def _finish_unless_replaced(folder: Path, names: set[str]) -> bool:
    """Finish an earlier killed save; True if that fails but all its files are about to be replaced.

    Raises TornSaveError if it fails and some are not.
    """
    try:
        _finish_interrupted_here(folder)
    except TornSaveError:
        record = read_record(folder)
        if record is None or not record.names <= names:
            raise
        return True
    return False


def _finish_interrupted_here(folder: Path) -> None:
    """Finish a killed save, or drop its record if others rewrote all of its files."""
    record = read_record(folder)
    if record is None:
        return
    locations = {record.place(change) for change in record.changes}
    if locations <= {Location.DRAFT, Location.TARGET}:
        _finish(record)
    elif locations <= {Location.LOST} or _is_rewritten(record, locations):
        _drop(record)
    else:
        _refuse(record)


def _is_rewritten(record: SaveRecord, locations: set[Location]) -> bool:
    """Whether another program replaced all files, or some after all were in place.

    In a copy of the folder file times may differ though nobody wrote the files.
    """
    others = {Location.OTHER, Location.OTHER_OVER_DRAFT}
    is_copy = record.folder.stat().st_ino != record.inode
    return not is_copy and (locations <= others or locations <= {Location.TARGET, Location.OTHER})


def _refuse(record: SaveRecord) -> NoReturn:
    changed = [
        change.name
        for change in record.changes
        if record.place(change) not in (Location.DRAFT, Location.TARGET)
    ]
    few = ", ".join(changed[:4]) + (", …" if len(changed) > 4 else "")
    raise TornSaveError(
        f"{record.folder}: a save was interrupted and its files were changed since ({few}): they "
        "may be of different saves; save all of them again, or load another checkpoint, or "
        f"remove {record.folder / RECORD} to accept them as they are"
    )


def _finish_started(record: SaveRecord) -> None:
    """Move the files of a committed save into place. OSError if the next load must do that."""
    try:
        _sync([record.folder])
        _finish(record)
    except OSError as error:
        text = f"{error.strerror}; all files were written; the next load or save moves them"
        raise OSError(error.errno, text, str(record.folder)) from error
    except BaseException:
        with suppress(OSError):
            _finish(record)  # an interrupt comes once
        raise


def _finish(record: SaveRecord) -> None:
    """Move the remaining drafts into place, and remove the record and other remnants."""
    folder = record.folder
    for change in record.changes:
        target = folder / change.name
        if change.new is None:
            target.unlink(missing_ok=True)
        elif record.source(change).exists():
            record.source(change).replace(target)
    _sync({(folder / change.name).parent for change in record.changes})
    _drop(record)


def _drop(record: SaveRecord) -> None:
    """Remove a record, and the drafts that it names."""
    (record.folder / RECORD).unlink(missing_ok=True)
    shutil.rmtree(record.folder / record.draft, ignore_errors=True)
