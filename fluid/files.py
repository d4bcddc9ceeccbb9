"""Writing files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["replace_file"]


def replace_file(path: Path, data: bytes) -> None:
    """Write a file, making the folders on its way; until it is whole, an older one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".saving-", dir=path.parent) as folder:
        draft = Path(folder, "draft")
        draft.write_bytes(data)
        draft.replace(path)
