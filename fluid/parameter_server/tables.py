"""Files of tables that lie on servers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from runtime.errors import WireError
from runtime.files.checkpoint import save_tensor
from runtime.tensors.scope import Scope

__all__ = ["save_table"]


def save_table(scope: Scope, number: int, name: str, folder: str) -> None:
    """Write a server's part of a table to `FOLDER/NAME_NUMBER`, where release 1.8.5 writes it.

    Raises WireError for a variable that does not lie here and for a name that is no file's.
    """
    variable = scope.find_var(name)
    if variable is None or Path(name).name != name:
        raise WireError(f"table {name!r} does not lie on server {number}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    save_tensor(Path(folder) / f"{name}_{number}", np.array(variable.get_tensor()))
