"""Folders: made, copied, removed."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["copy_tree", "mkpath", "remove_tree"]


def mkpath(name: str, mode: int = 0o777, verbose: int = 1, dry_run: int = 0) -> list[str]:
    """Make a folder and those around it; the folders that were made."""
    folders = [Path(name), *Path(name).parents]
    missing = [folder for folder in reversed(folders) if not folder.is_dir()]
    if not dry_run:
        for folder in missing:
            folder.mkdir(mode)
    return [str(folder) for folder in missing]


def copy_tree(
    src: str,
    dst: str,
    preserve_mode: int = 1,
    preserve_times: int = 1,
    preserve_symlinks: int = 0,
    update: int = 0,
    verbose: int = 1,
    dry_run: int = 0,
) -> list[str]:
    """Copy what is in a folder into another one, which may be there; the files that were made."""
    files = sorted(file for file in Path(src).rglob("*") if not file.is_dir())
    copies = [str(Path(dst) / file.relative_to(src)) for file in files]
    if not dry_run:
        copy = shutil.copy2 if preserve_times else shutil.copy
        links = bool(preserve_symlinks)
        shutil.copytree(src, dst, symlinks=links, copy_function=copy, dirs_exist_ok=True)
    return copies


def remove_tree(directory: str, verbose: int = 1, dry_run: int = 0) -> None:
    """Remove a folder and what is in it."""
    if not dry_run:
        shutil.rmtree(directory)
