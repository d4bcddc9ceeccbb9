"""The record of a save that is committed but whose files are not all in place yet.

The record is a JSON file in the target folder. It is created by one rename, when every new file has
been written next to the old ones and synced: this commits the save. It states for each file how to
recognise the old and the new version, so that the next process can finish the save, and detects
whether others have written to the folder since.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, cast

from compiler.support.dataclass import dataclass
from runtime.errors import CheckpointError

RECORD, DRAFTS = ".saved-record.json", ".saving-"
_LARGEST = 64 << 20
"""Maximum size of a record file in bytes."""

Stamp = tuple[int, int]
"""Size in bytes and modification time in nanoseconds: preserved by a rename and `cp -a`."""


class TornSaveError(CheckpointError):
    """A save was interrupted and its files were changed since: old and new ones may be mixed."""


class Location(Enum):
    """The location of the new version of a file."""

    DRAFT = "next to the old file"
    TARGET = "in place"
    LOST = "nowhere, the old file is in place"
    OTHER_OVER_DRAFT = "next to a file that another program wrote"
    OTHER = "nowhere, another program wrote the file"


@dataclass(frozen=True)
class Change:
    """A file that a save replaces by a draft, or removes if it has no draft (`new` is None)."""

    name: str
    draft: str
    old: Stamp | None
    new: Stamp | None


@dataclass(frozen=True)
class SaveRecord:
    """The changes of a save to a folder; `inode` is that of the folder, `draft` a folder in it."""

    folder: Path
    inode: int
    draft: str
    changes: Sequence[Change]

    @property
    def names(self) -> set[str]:
        """The files that the save replaces or removes."""
        return {change.name for change in self.changes}

    def source(self, change: Change) -> Path:
        """The path of the new version of a file until it is moved into place."""
        return self.folder / self.draft / change.draft

    def place(self, change: Change) -> Location:
        """Return the location of the new version of a file."""
        now = stamp(self.folder / change.name)
        waits = change.new is not None and stamp(self.source(change)) == change.new
        if now == change.new and not waits:
            return Location.TARGET
        if now == change.old:
            return Location.DRAFT if waits or change.new is None else Location.LOST
        return Location.OTHER_OVER_DRAFT if waits else Location.OTHER

    def write(self, draft: Path) -> None:
        """Write the record into a draft; the rename of `draft` to `RECORD` commits it."""
        changes = [[change.name, change.draft, change.old, change.new] for change in self.changes]
        text = json.dumps({"inode": self.inode, "draft": self.draft, "changes": changes})
        draft.write_text(text + "\n", encoding="utf-8")


def stamp(path: Path) -> Stamp | None:
    """The stamp that identifies a version of a file; None if there is no file."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size, status.st_mtime_ns


def has_record(folder: Path) -> bool:
    """Whether a save into the folder is committed but not finished."""
    return os.path.lexists(folder / RECORD)


def read_record(folder: Path) -> SaveRecord | None:
    """Read the record in a folder, or return None. Raises TornSaveError if the file is not a
    record.

    A folder may be untrusted: every name has to lead to a path inside it.
    """
    path = folder / RECORD
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise ValueError("it is not a record, or too large")
        return _parsed(folder, json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        hint = "save into another folder, or remove the file to accept the others as they are"
        raise TornSaveError(f"{path} is not a save record: {error}; {hint}") from error


def _parsed(folder: Path, held: Mapping[str, Any]) -> SaveRecord:
    draft = _plain(held["draft"])
    if not draft.startswith(DRAFTS) or "/" in draft or (folder / draft).is_symlink():
        raise ValueError(f"{draft!r} is not a draft folder")
    changes = tuple(_change(folder, *change) for change in held["changes"])
    if type(held["inode"]) is not int:
        raise ValueError("its inode is not a number")
    return SaveRecord(folder, held["inode"], draft, changes)


def _change(folder: Path, name: Any, draft: Any, old: Any, new: Any) -> Change:
    if "/" in _plain(draft):
        raise ValueError(f"{draft!r} is not a draft")
    expect_inside(folder, _plain(name))
    return Change(name, draft, _stamp(old), _stamp(new))


def _plain(name: Any) -> str:
    """Return a relative path without `..`; ValueError for anything else."""
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is not a file name")
    path = PurePath(name)
    if path.anchor or ".." in path.parts or not path.parts or path.as_posix() != name:
        raise ValueError(f"{name!r} does not name a file in the folder")
    return name


def _stamp(given: Any) -> Stamp | None:
    if given is None:
        return None
    numbers = cast(list[Any], given) if isinstance(given, list) else []
    if len(numbers) != 2 or any(type(number) is not int for number in numbers):
        raise ValueError(f"{given!r} is not a size and a time")
    return int(numbers[0]), int(numbers[1])


def expect_inside(folder: Path, name: str) -> None:
    """Raise ValueError for a name that leads out of the folder through a symbolic link."""
    parent = (folder / name).parent.resolve()
    if not parent.is_relative_to(folder.resolve()):
        raise ValueError(f"{name!r} is in {parent}, outside {folder}, by a symbolic link")
