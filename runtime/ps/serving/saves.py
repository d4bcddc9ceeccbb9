"""Tables that a server saves: their files, and the folder that trainers may let it save to."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from runtime.errors import WireError
from runtime.files.checkpoint import save_tensor
from runtime.tensors.scope import Scope

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


def save_table(scope: Scope, number: int, name: str, folder: str) -> None:
    """Write a server's part of a table to `FOLDER/NAME_NUMBER`, where release 1.8.5 writes it.

    Raises WireError for a variable that does not lie here and for a name that is no file's.
    """
    variable = scope.find_var(name)
    if variable is None or Path(name).name != name:
        raise WireError(f"table {name!r} does not lie on server {number}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    save_tensor(Path(folder) / f"{name}_{number}", np.array(variable.get_tensor()))


def _is_plain(name: str) -> bool:
    """Whether a text names a file in the current folder, on any system."""
    is_safe = name.isprintable() and not set(name) & set("/\\:")
    return is_safe and 0 < len(name) <= MAX_NAME and not name.startswith(".")
