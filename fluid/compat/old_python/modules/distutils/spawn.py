"""Programs that are installed."""

from __future__ import annotations

import shutil

__all__ = ["find_executable"]


def find_executable(executable: str, path: str | None = None) -> str | None:
    """Where a program is; None where it is not found."""
    return shutil.which(executable, path=path)
