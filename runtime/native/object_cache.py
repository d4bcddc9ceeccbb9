"""On-disk cache of object files, so that the next process need not compile equal kernels.

An entry is one file for each kernel, whose name is the digest of the IR text, the machine and the
version of LLVM.

Objects are executed as found, so only the user may have write access to the folder, which
`compiler.support.private_folders` checks; digests detect damage, but not an attack.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache

from compiler.codegen.native.machine import Machine
from compiler.options import Cache
from compiler.support.digested_files import DigestedFiles
from compiler.support.private_folders import is_private
from compiler.support.settings.fluid import FLUID_CACHE
from runtime.native.build import OPTIONS, build, llvm_version

ENTRY = re.compile(r"[0-9a-f]{64}\.o")
"""The names of entries."""


def user_cache() -> DigestedFiles | None:
    """Return this user's cache; None if it is disabled or others can write to its folder."""
    storage = Cache.from_env(kind="native")
    usable = storage.limit > 0 and is_private(storage.folder, FLUID_CACHE)
    return DigestedFiles(storage.folder, storage.limit, ".o") if usable else None


def objects(kernels: Mapping[str, str], machine: Machine, threads: int = 1) -> dict[str, bytes]:
    """Object files of kernels, from their names and IR texts: cached ones, or built by `threads`.

    Kernels of equal text are compiled once. Raises CompileError as `build`.
    """
    cache = user_cache()
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
