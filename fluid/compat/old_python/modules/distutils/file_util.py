"""Files: copied, moved."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["copy_file", "move_file", "write_file"]


def copy_file(
    src: str,
    dst: str,
    preserve_mode: int = 1,
    preserve_times: int = 1,
    update: int = 0,
    link: str | None = None,
    verbose: int = 1,
    dry_run: int = 0,
) -> tuple[str, int]:
    """Copy a file to a name or into a folder; where it is, and whether it was copied."""
    target = _target(src, dst)
    if update and target.exists() and target.stat().st_mtime >= Path(src).stat().st_mtime:
        return str(target), 0
    if not dry_run:
        (shutil.copy2 if preserve_times else shutil.copy)(src, target)
    return str(target), 1


def move_file(src: str, dst: str, verbose: int = 1, dry_run: int = 0) -> str:
    """Move a file to a name or into a folder; where it is."""
    return str(_target(src, dst) if dry_run else shutil.move(src, _target(src, dst)))


def _target(src: str, dst: str) -> Path:
    return Path(dst) / Path(src).name if Path(dst).is_dir() else Path(dst)


def write_file(filename: str, contents: list[str]) -> None:
    """Write lines."""
    lines = [f"{line}\n" for line in contents]
    Path(filename).write_text("".join(lines), encoding="utf-8")
