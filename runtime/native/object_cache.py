"""On-disk cache of object files, so that the next process need not compile equal kernels.

An entry is one file for each kernel: a SHA-256 of the object, then the object. Its name is the
digest of the IR text, the machine and the version of LLVM. Files are written atomically, one that
does not match is deleted, and above the size limit the least recently used are removed.

Objects are executed as found, so only the user may have write access to the folder, which
`compiler.private_folders` checks; digests detect damage, but not an attack.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from compiler.codegen.native.machine import Machine
from compiler.options import Cache
from compiler.private_folders import is_due, is_private, trim
from runtime.native.build import OPTIONS, build, llvm_version

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
        kept = Cache.from_env(kind="native")
        usable = kept.limit > 0 and is_private(kept.folder, "FLUID_CACHE")
        return ObjectCache(kept.folder, kept.limit) if usable else None

    def find(self, key: str) -> bytes | None:
        """Return the object stored under a key; None if it is missing or damaged."""
        place = self._place(key)
        try:
            with place.open("rb") as file:
                held = file.read(_LARGEST + 1)
        except OSError:
            return None
        code = held[_SUM:]
        if len(held) > _LARGEST or not code or hashlib.sha256(code).digest() != held[:_SUM]:
            with suppress(OSError):
                place.unlink()
            return None
        with suppress(OSError):
            os.utime(place)  # the time of last use
        return code

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Store objects by key, and trim; nothing is stored if the disk is full or read-only."""
        with suppress(OSError):
            for key, code in objects.items():
                with NamedTemporaryFile(dir=self.root, prefix=".draft-", delete=False) as draft:
                    draft.write(hashlib.sha256(code).digest() + code)
                Path(draft.name).replace(self._place(key))
            if is_due(next(iter(objects)), sum(map(len, objects.values())), self.limit):
                trim({each: each for each in self.root.iterdir()}, self.limit)

    def _place(self, key: str) -> Path:
        return self.root / f"{key}.o"


def objects(kernels: Mapping[str, str], machine: Machine, threads: int = 1) -> dict[str, bytes]:
    """Object files of kernels, from their names and IR texts: cached ones, or built by `threads`.

    Kernels of equal text are compiled once. Raises CompileError as `build`.
    """
    cache = ObjectCache.from_env()
    keys = {name: digest(text, machine) for name, text in kernels.items()}
    found: dict[str, bytes] = {}
    for key in {} if cache is None else dict.fromkeys(keys.values()):
        held = cache.find(key) if cache else None
        if held is not None:
            found[key] = held
    missing: dict[str, str] = {}
    for name, key in keys.items():
        if key not in found:
            missing.setdefault(key, name)
    made = build({name: kernels[name] for name in missing.values()}, machine, threads)
    added = {key: made[name] for key, name in missing.items()}
    if cache is not None and added:
        cache.put(added)
    found |= added
    return {name: found[key] for name, key in keys.items()}


def digest(text: str, machine: Machine) -> str:
    """Return the digest of all that determines the object file of a kernel."""
    made = hashlib.sha256(_toolchain(machine))
    made.update(text.encode())
    return made.hexdigest()


@cache
def _toolchain(machine: Machine) -> bytes:
    return repr((machine, llvm_version(), OPTIONS)).encode()
