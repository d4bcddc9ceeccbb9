"""On-disk cache of modules for the CPU, so that the next process need not compile an equal program.

A module that was compiled over parameters is stored with the arrays that the compilation computed
from them, such as folded weights; the digest of the parameters is part of the key. The arrays that
its kernels prepare from those, such as packed weights, are stored when they were first computed,
and not those that the module reads only to prepare others: an array without values stands for each.

An entry is a JSON file below its digest, with the module's source and the values that the source
assigns, so that loading it parses nothing; arrays are in files of their own, which are mapped
(`compiler.support.stored_arrays`). Its key is the digest of everything that determines the code:
the program, feeds, fetches, options, the source files of the compiler and of the runtime, which
modules call, and the versions of Python and NumPy.
Files are written atomically; an entry whose digest does not match is deleted. Above the size limit
the least recently used entries are removed.

The source is executed as it is found, so only the user may have write access to the folder, which
`compiler.support.private_folders` checks; digests detect damage, but not an attack.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from compiler.codegen.module import Module, with_ir, without_ir
from compiler.codegen.packed_params import packed_params
from compiler.errors import ParseError
from compiler.ir.dims import evaluate
from compiler.ir.types import Array, DType
from compiler.options import Cache, Options
from compiler.record import Record
from compiler.support.dataclass import dataclass
from compiler.support.private_folders import (
    PrivateFolder,
    is_due,
    is_private,
    private_folder,
    suppress_disk_errors,
    trim,
)
from compiler.support.processors import available_processors
from compiler.support.settings.fluid import FLUID_CACHE
from compiler.support.shared_arrays import SharedArrays
from compiler.support.stored_arrays import SUFFIX, byte_view, map_arrays, put_arrays, remove_arrays

ENTRY = re.compile(rf"[0-9a-f]{{64}}(\.json|(\.prepared)?{re.escape(SUFFIX)}(\.json)?)")
"""The names of the files of entries."""
_PACKAGES = Path(__file__).parents[1], Path(__file__).parents[2] / "runtime"
"""What decides the code of a module, and what a module runs with."""
_DAMAGES = OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, ParseError
_EACH = 1 << 16
"""The time to begin with an array's digest, as that of so many bytes."""
_PREPARED = f".prepared{SUFFIX}"
_LARGEST = 64 << 20
"""Maximum bytes of an entry file; larger files are ignored."""


@dataclass(frozen=True)
class ModuleStore:
    """An on-disk cache of modules below a folder, at most `limit` bytes."""

    root: Path
    limit: int

    @staticmethod
    def from_env() -> ModuleStore | None:
        """Return this user's store; None if it is disabled or others can write to its folder."""
        storage = Cache.from_env(kind="modules")
        usable = storage.limit > 0 and is_private(storage.folder, FLUID_CACHE)
        return ModuleStore(storage.folder, storage.limit) if usable else None

    def find(
        self, key: str, options: Options, params: MutableMapping[str, Array] | None = None
    ) -> Module | None:
        """Return the module stored under a key; None if it is missing or damaged.

        The arrays stored with it are added to `params`, and unfilled ones, which `prepared` of the
        module lists.
        """
        try:
            with private_folder(self.root) as folder:
                module, arrays = _found(folder, key, options)
        except _DAMAGES:
            return None
        if params is not None:
            params.update(arrays)
        return module

    def put(
        self, key: str, module: Module, arrays: Mapping[str, Array] | None = None,
        prepared: Mapping[str, Array] | None = None,
    ) -> None:  # fmt: skip
        """Store a module with its arrays, and those that its kernels prepared.

        With `prepared`, arrays that the module only prepares others from are left out. Nothing is
        stored if the disk is full or read-only, or if the arrays take more than half of the limit.
        """
        packed = packed_params(module) if prepared else set[str]()
        added = {name: array for name, array in (arrays or {}).items() if name not in packed}
        unfilled = sorted(packed.intersection(arrays or {}))
        both = [added, prepared or {}]
        if not self._has_room(*both):
            return
        text = json.dumps(_fields(module, bool(added), unfilled)).encode()
        digest = hashlib.sha256(text).hexdigest().encode()
        with suppress_disk_errors(self.root), private_folder(self.root) as folder:
            try:
                for suffix, some in zip((SUFFIX, _PREPARED), both, strict=True):
                    if some:
                        put_arrays(folder, f"{key}{suffix}", some)
                folder.write(_entry_name(key), [digest, b"\n", text])
            except BaseException:
                folder.remove(_entry_name(key))
                for suffix in (SUFFIX, _PREPARED):
                    remove_arrays(folder, f"{key}{suffix}")
                raise
            self._trim(folder, key, len(text) + sum(map(_nbytes, both)))

    def arrays(self, key: str) -> dict[str, Array]:
        """Return the arrays that were stored with a module; none if they are missing."""
        return self._arrays(f"{key}{SUFFIX}")

    def prepared(self, key: str) -> dict[str, Array]:
        """Return the arrays that kernels of the module prepared; none if they are missing."""
        return self._arrays(f"{key}{_PREPARED}")

    def put_prepared(self, key: str, arrays: Mapping[str, Array]) -> None:
        """Add the arrays that kernels of a stored module prepared; as `put` if there is no room."""
        if not arrays or not self._has_room(arrays):
            return
        with suppress_disk_errors(self.root), private_folder(self.root) as folder:
            folder.stat(_entry_name(key))  # raises if there is none
            put_arrays(folder, f"{key}{_PREPARED}", arrays)
            self._trim(folder, key, _nbytes(arrays))

    def _has_room(self, *arrays: Mapping[str, Array]) -> bool:
        return 2 * sum(map(_nbytes, arrays)) <= self.limit

    def _trim(self, folder: PrivateFolder, key: str, added: int) -> None:
        """Remove entries above the limit: the arrays of an entry are as old as the entry."""
        if is_due(key, added, self.limit):
            trim(folder, {name: _entry_of(name) for name in folder.names()}, self.limit)

    def _arrays(self, name: str) -> dict[str, Array]:
        """The arrays of a file; none if they are missing or damaged."""
        try:
            with private_folder(self.root) as folder:
                return map_arrays(folder, name)
        except _DAMAGES:
            return {}


def _found(folder: PrivateFolder, key: str, options: Options) -> tuple[Module, dict[str, Array]]:
    """The module of an entry and its arrays. A damaged entry is removed, and raises as a missing
    one.
    """
    name = _entry_name(key)
    try:
        entry = _entry(folder.read(name, _LARGEST))
        module = _module(entry, options)
        arrays = map_arrays(folder, f"{key}{SUFFIX}") if entry["arrays"] else {}
        unfilled = _unfilled(module, entry["unfilled"])
        if unfilled:
            folder.stat(f"{key}{_PREPARED}")  # raises if what was prepared from them is missing
            module = replace(module, prepared=SharedArrays(unfilled=unfilled))
        folder.touch(name)
    except FileNotFoundError:
        raise
    except _DAMAGES:
        folder.remove(name)
        raise
    return module, arrays | unfilled


def _unfilled(module: Module, names: Iterable[str]) -> dict[str, Array]:
    """Arrays without values for parameters of a module; their memory is not touched."""
    types = {param.name: param for param in module.params}
    shapes = {name: [evaluate(size, {}) for size in types[name].shape] for name in names}
    return {name: np.empty(shapes[name], DType.of(types[name].dtype).numpy) for name in names}


def _nbytes(arrays: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in arrays.values())


def _entry_of(name: str) -> str:
    """The entry that a file belongs to; for the draft of another process itself."""
    key = name.partition(".")[0]
    return _entry_name(key) if key else name


def _entry_name(key: str) -> str:
    return f"{key}.json"


def module_key(target: str, options: Options, *made_of: object) -> str:
    """Return the digest of everything that determines a module's code, including the compiler
    and the runtime themselves.
    """
    chosen = {field.name: getattr(options, field.name) for field in fields(options)}
    chosen["disable"] = sorted(options.disable)
    decided = (target, chosen, made_of, sources_digest(), sys.version_info[:3], np.__version__)
    return hashlib.sha256(repr(decided).encode()).hexdigest()


def params_digest(params: Mapping[str, Array], names: Iterable[str]) -> str:
    """Return the digest of those of `names` that are in `params`: dtypes, shapes and every byte."""
    arrays = {name: array for name in sorted({*names}) if (array := params.get(name)) is not None}
    parts = _parts(arrays, available_processors())
    with ThreadPoolExecutor(len(parts), "fluid-digest") as pool:
        digests = {
            name: digest for part in pool.map(_digests, parts) for name, digest in part.items()
        }
    return hashlib.sha256(b"".join(digests[name] for name in arrays)).hexdigest()


def _parts(arrays: Mapping[str, Array], threads: int) -> list[dict[str, Array]]:
    """Divide arrays among threads, so that all have about as many bytes; at least one part."""
    parts: list[dict[str, Array]] = [{} for _ in range(threads)]
    sizes = [0] * threads
    for name, array in sorted(arrays.items(), key=lambda each: -each[1].nbytes):
        least = sizes.index(min(sizes))
        parts[least][name] = array
        sizes[least] += array.nbytes + _EACH
    return [part for part in parts if part] or [{}]


def _digests(arrays: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: _array_digest(name, array) for name, array in arrays.items()}


def _array_digest(name: str, array: Array) -> bytes:
    digest = hashlib.sha256(repr((name, array.dtype.name, array.shape)).encode())
    digest.update(byte_view(array))
    return digest.digest()


@cache
def sources_digest() -> str:
    """Return the digest of names, modification times and sizes of the files of the packages."""
    files = sorted(file for package in _PACKAGES for file in _files(str(package)))
    return hashlib.sha256(repr(files).encode()).hexdigest()


def _files(folder: str) -> list[tuple[str, int, int]]:
    """Path, modification time and size of each file in a folder and those in it."""
    files: list[tuple[str, int, int]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                about = entry.stat()
                files.append((entry.path, about.st_mtime_ns, about.st_size))
            elif entry.name != "__pycache__":
                files += _files(entry.path)
    return files


def _fields(module: Module, has_arrays: bool, unfilled: Sequence[str]) -> dict[str, Any]:
    """Return the JSON fields of an entry; the options are part of the key."""
    record = module.record
    recorded = {} if record is None else {
        "packed": base64.b64encode(record.packed).decode(),
        "milliseconds": dict(record.milliseconds),
        "watch_state": record.watch_state,
    }  # fmt: skip
    source = without_ir(module.source)
    fields = {"source": source, "values": module.values, "made": recorded, "arrays": has_arrays}
    return {**fields, "unfilled": unfilled}


def _entry(stored: bytes) -> dict[str, Any]:
    """The fields of a stored entry; ValueError if its digest does not match."""
    digest, _, text = stored.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise ValueError("the entry was damaged")
    return dict(json.loads(text))


def _module(entry: Mapping[str, Any], options: Options) -> Module:
    """Return the module of an entry."""
    values, recorded = entry["values"], entry["made"]
    module = Module.of(with_ir(entry["source"], values["KERNELS_IR"]), values)
    record = None
    if recorded:
        start = base64.b64decode(recorded["packed"])
        record = Record(
            start, module.target, options, recorded["milliseconds"], recorded["watch_state"]
        )  # fmt: skip
    return replace(module, record=record, memory_limit=options.memory_limit_bytes)
