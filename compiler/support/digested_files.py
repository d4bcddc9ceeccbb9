"""Files of a cache by key: each begins with the SHA-256 of the rest, and damaged ones are removed.

Files are written atomically, and above the size limit the least recently used are removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from compiler.support.dataclass import dataclass
from compiler.support.private_folders import (
    PrivateFolder,
    is_due,
    private_folder,
    suppress_disk_errors,
    trim,
)

LARGEST = 16 << 20
"""Most bytes of a file; larger ones are not from such a cache."""
_SUM = hashlib.sha256().digest_size


@dataclass(frozen=True)
class DigestedFiles:
    """Files with a suffix in a private folder, at most `limit` bytes."""

    root: Path
    limit: int
    suffix: str

    def find(self, key: str) -> bytes | None:
        """Return the content stored under a key; None if it is missing or damaged."""
        return self.find_all([key]).get(key)

    def find_all(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return what is stored under these keys, except what is missing or damaged."""
        contents: dict[str, bytes] = {}
        with suppress(OSError), private_folder(self.root) as folder:
            for key in keys:
                content = _content(folder, key + self.suffix)
                if content is not None:
                    contents[key] = content
        return contents

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Store contents by key, and trim; nothing is stored if the disk is full or read-only."""
        if not contents:
            return
        with suppress_disk_errors(self.root), private_folder(self.root) as folder:
            for key, content in contents.items():
                folder.write(key + self.suffix, [hashlib.sha256(content).digest(), content])
            if is_due(next(iter(contents)), sum(map(len, contents.values())), self.limit):
                trim(folder, {name: name for name in folder.names()}, self.limit)

    def remove(self, key: str) -> None:
        """Remove what is stored under a key."""
        with suppress(OSError), private_folder(self.root) as folder:
            folder.remove(key + self.suffix)


def _content(folder: PrivateFolder, name: str) -> bytes | None:
    """The content of a file; None if it is missing, or damaged, and then removed."""
    try:
        stored = folder.read(name, LARGEST)
        content = stored[_SUM:]
        if not content or hashlib.sha256(content).digest() != stored[:_SUM]:
            raise ValueError("the file was damaged")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        folder.remove(name)
        return None
    with suppress(OSError):
        folder.touch(name)
    return content
