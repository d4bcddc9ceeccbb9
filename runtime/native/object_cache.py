"""On-disk cache of object files, so that the next process need not compile equal kernels.

An entry is one file for each kernel: a SHA-256 of the object, then the object. Its name is the
digest of the IR text, the machine and the version of LLVM. Files are written atomically, one that
does not match is deleted, and above the size limit the least recently used are removed.

Objects are executed as found, so only the user may have write access to the folder, which
`compiler.support.private_folders` checks; digests detect damage, but not an attack.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from compiler.codegen.native.machine import Machine
from compiler.options import Cache
from compiler.support.dataclass import dataclass
from compiler.support.private_folders import (
    PrivateFolder,
    is_due,
    is_private,
    private_folder,
    suppress_disk_errors,
    trim,
)
from compiler.support.settings.fluid import FLUID_CACHE
from runtime.native.build import OPTIONS, build, llvm_version

ENTRY = re.compile(r"[0-9a-f]{64}\.o")
"""The names of entries."""
_LARGEST = 16 << 20
"""Most bytes of an object; larger files are not from this cache."""
_SUM = hashlib.sha256().digest_size


@dataclass(frozen=True)
class ObjectCache:
    """Object files in a folder, at most `limit` bytes."""

    root: Path
    limit: int

    @staticmethod
    def from_env() -> ObjectCache | None:
        """Return this user's cache; None if it is disabled or others can write to its folder."""
        storage = Cache.from_env(kind="native")
        usable = storage.limit > 0 and is_private(storage.folder, FLUID_CACHE)
        return ObjectCache(storage.folder, storage.limit) if usable else None

    def find(self, key: str) -> bytes | None:
        """Return the object stored under a key; None if it is missing or damaged."""
        return self.find_all([key]).get(key)

    def find_all(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the objects that are stored under these keys, except damaged ones."""
        objects_by_key: dict[str, bytes] = {}
        with suppress(OSError), private_folder(self.root) as folder:
            for key in keys:
                code = _object(folder, f"{key}.o")
                if code is not None:
                    objects_by_key[key] = code
        return objects_by_key

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Store objects by key, and trim; nothing is stored if the disk is full or read-only."""
        with suppress_disk_errors(self.root), private_folder(self.root) as folder:
            for key, code in objects.items():
                folder.write(f"{key}.o", [hashlib.sha256(code).digest(), code])
            if is_due(next(iter(objects)), sum(map(len, objects.values())), self.limit):
                trim(folder, {name: name for name in folder.names()}, self.limit)


def _object(folder: PrivateFolder, name: str) -> bytes | None:
    """The object in a file; None if it is missing, or damaged, and then removed."""
    try:
        stored = folder.read(name, _LARGEST)
        code = stored[_SUM:]
        if not code or hashlib.sha256(code).digest() != stored[:_SUM]:
            raise ValueError("the object was damaged")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        folder.remove(name)
        return None
    with suppress(OSError):
        folder.touch(name)
    return code


def objects(kernels: Mapping[str, str], machine: Machine, threads: int = 1) -> dict[str, bytes]:
    """Object files of kernels, from their names and IR texts: cached ones, or built by `threads`.

    Kernels of equal text are compiled once. Raises CompileError as `build`.
    """
    cache = ObjectCache.from_env()
    keys = {name: digest(text, machine) for name, text in kernels.items()}
    objects_by_key = {} if cache is None else cache.find_all(dict.fromkeys(keys.values()))
    missing: dict[str, str] = {}
    for name, key in keys.items():
        if key not in objects_by_key:
            missing.setdefault(key, name)
    built = build({name: kernels[name] for name in missing.values()}, machine, threads)
    added = {key: built[name] for key, name in missing.items()}
    if cache is not None and added:
        cache.put(added)
    objects_by_key |= added
    return {name: objects_by_key[key] for name, key in keys.items()}


def digest(text: str, machine: Machine) -> str:
    """Return the digest of all that determines the object file of a kernel."""
    hasher = hashlib.sha256(_toolchain(machine))
    hasher.update(text.encode())
    return hasher.hexdigest()


@cache
def _toolchain(machine: Machine) -> bytes:
    return repr((machine, llvm_version(), OPTIONS)).encode()
