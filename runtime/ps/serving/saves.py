"""The folder that trainers may let a server save tables to."""

from __future__ import annotations

from pathlib import Path

from runtime.errors import WireError

MAX_NAME = 200
"""Maximum number of characters of a table's name that is a file's."""
MAX_FOLDER = 1000
"""Maximum number of characters of a folder's path."""


def save_folder(root: str, folder: str, name: str) -> Path:
    """The resolved folder to save a table to; a relative one is in `root`.

    Raises WireError if it is not within `root` once links are resolved, if no `root` is set, and if
    the name of the table is not that of a plain file.
    """
    if not root:
        hint = "set FLUID_PS_SAVE_DIR, or config.ps_save_dir, to the folder that it may write to"
        raise WireError("this server saves no tables for trainers", hint=hint)
    if not _is_plain(name):
        raise WireError(f"the name of table {name[:MAX_NAME]!r} is not that of a file")
    if len(folder) > MAX_FOLDER or "\0" in folder or not folder.isprintable():
        raise WireError(f"{folder[:MAX_FOLDER]!r} is not a folder's path")
    try:
        top = Path(root).resolve()
        place = (top / folder).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise WireError(f"{folder!r} is not a folder's path: {error}") from error
    if not place.is_relative_to(top):
        raise WireError(
            f"{folder!r} is not in the folder where this server saves tables",
            hint="FLUID_PS_SAVE_DIR, or config.ps_save_dir, is the folder that it may write to",
        )
    return place


def _is_plain(name: str) -> bool:
    """Whether a text names a file in the current folder, on any system."""
    is_safe = name.isprintable() and not set(name) & set("/\\:")
    return is_safe and 0 < len(name) <= MAX_NAME and not name.startswith(".")
