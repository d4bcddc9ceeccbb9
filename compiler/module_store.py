"""On-disk cache of modules for the CPU, so that the next process need not compile an equal program.

A module that was compiled over parameters is stored with the arrays that the compilation computed
from them, such as folded weights; the digest of the parameters is part of the key.

An entry is a JSON file, plus a binary file if there are arrays. Its key is the digest of everything
that determines the code: the program, feeds, fetches, options, the compiler's source files and the
versions of Python and NumPy. Files are written atomically; an entry whose digest does not match is
deleted. Above the size limit the least recently used entries are removed.

The source is executed as it is found, so only the user may have write access to the folder, which
`compiler.private_folders` checks; digests detect damage, but not an attack.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from math import prod
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from compiler.codegen.module import Module
from compiler.errors import ParseError
from compiler.ir.types import Array, DType
from compiler.options import Cache, Options
from compiler.private_folders import is_private, trim
from compiler.record import Record

_PACKAGE = Path(__file__).parent
_DAMAGES = OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, ParseError
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
        kept = Cache.from_env(kind="modules")
        usable = kept.limit > 0 and is_private(kept.folder, "FLUID_CACHE")
        return ModuleStore(kept.folder, kept.limit) if usable else None

    def find(
        self, key: str, options: Options, params: MutableMapping[str, Array] | None = None
    ) -> Module | None:
        """Return the module stored under a key; None if it is missing or damaged.

        The arrays stored with it are added to `params`.
        """
        place = self._entry_path(key)
        try:
            if place.stat().st_size > _LARGEST:
                return None
            entry = json.loads(place.read_bytes())
            module = _module(entry, options)
            arrays = _arrays(self._arrays_path(key), entry["arrays"])
            for used in (place, self._arrays_path(key))[: 1 + bool(arrays)]:
                os.utime(used)  # the time of last use
        except FileNotFoundError:
            return None
        except _DAMAGES:
            with suppress(OSError):
                place.unlink()
            return None
        if params is not None:
            params.update(arrays)
        return module

    def put(self, key: str, module: Module, arrays: Mapping[str, Array] | None = None) -> None:
        """Store a module with its arrays.

        Nothing is stored if the disk is full or read-only, or if the arrays take more than half of
        the limit.
        """
        added = arrays or {}
        if 2 * sum(each.nbytes for each in added.values()) > self.limit:
            return
        held: dict[str, Any] = {}
        with suppress(OSError):
            if added:
                each = [[name, array.dtype.name, array.shape] for name, array in added.items()]
                digest = self._write(self._arrays_path(key), map(_bytes, added.values()))
                held = {"each": each, "sha256": digest}
            self._write(self._entry_path(key), [json.dumps(_entry(module, held)).encode()])
            trim({each: each for each in self.root.iterdir()}, self.limit)

    def _write(self, place: Path, parts: Iterable[bytes | memoryview]) -> str:
        """Write a file atomically, and return its digest."""
        digest = hashlib.sha256()
        with NamedTemporaryFile(dir=self.root, prefix=".draft-", delete=False) as draft:
            for part in parts:
                digest.update(part)
                draft.write(part)
        Path(draft.name).replace(place)
        return digest.hexdigest()

    def _arrays_path(self, key: str) -> Path:
        """Return the path of an entry's arrays."""
        return self.root / f"{key}.arrays"

    def _entry_path(self, key: str) -> Path:
        return self.root / f"{key}.json"


def module_key(target: str, options: Options, *made_of: object) -> str:
    """Return the digest of everything that determines a module's code, including the compiler
    itself.
    """
    chosen = {each.name: getattr(options, each.name) for each in fields(options)}
    chosen["disable"] = sorted(options.disable)
    decided = (target, chosen, made_of, _compiler_digest(), sys.version_info[:3], np.__version__)
    return hashlib.sha256(repr(decided).encode()).hexdigest()


def params_digest(params: Mapping[str, Array], names: Iterable[str]) -> str:
    """Return the digest of those of `names` that are in `params`: dtypes, shapes and every byte."""
    digest = hashlib.sha256()
    for name in sorted({*names}):
        array = params.get(name)
        if array is not None:
            digest.update(repr((name, array.dtype.name, array.shape)).encode())
            digest.update(_bytes(array))
    return digest.hexdigest()


def _bytes(array: Array) -> memoryview:
    """The bytes of an array, in C order; without a copy if they lie in memory like that."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


@cache
def _compiler_digest() -> str:
    """Return the digest of names, modification times and sizes of the compiler's files."""
    return hashlib.sha256(repr(sorted(_files(_PACKAGE))).encode()).hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as found:
        for each in found:
            if each.is_dir():
                yield from _files(Path(each.path))
            elif not each.name.endswith(".pyc"):
                about = each.stat()
                yield each.path, about.st_mtime_ns, about.st_size


def _entry(module: Module, held: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON fields of an entry; the options are part of the key."""
    record = module.record
    made = {} if record is None else {
        "packed": base64.b64encode(record.packed).decode(),
        "milliseconds": dict(record.milliseconds),
        "watch_state": record.watch_state,
    }  # fmt: skip
    digest = _digest(module.source, made, held)
    return {"source": module.source, "made": made, "arrays": held, "sha256": digest}


def _arrays(place: Path, held: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of an entry; raise ValueError if they are damaged."""
    if not held:
        return {}
    types = [(name, DType.of(dtype).numpy, shape) for name, dtype, shape in held["each"]]
    sizes = [dtype.itemsize * prod(shape) for _, dtype, shape in types]
    if place.stat().st_size != sum(sizes):
        raise ValueError("the arrays were damaged")
    found = {name: np.empty(shape, dtype) for name, dtype, shape in types}
    digest = hashlib.sha256()
    with place.open("rb") as file:
        for array in found.values():
            file.readinto(_bytes(array))
            digest.update(_bytes(array))
    if digest.hexdigest() != held["sha256"]:
        raise ValueError("the arrays were damaged")
    return found


def _module(entry: Mapping[str, Any], options: Options) -> Module:
    """Return the module of an entry; raise ValueError if its digest does not match."""
    source, made = entry["source"], entry["made"]
    if entry["sha256"] != _digest(source, made, entry["arrays"]):
        raise ValueError("the entry was damaged")
    module = Module.parse(source)
    record = None
    if made:
        start = base64.b64decode(made["packed"])
        record = Record(
            start, module.target, options, made["milliseconds"], made["watch_state"]
        )  # fmt: skip
    return replace(module, record=record, memory_limit=options.memory_limit_bytes)


def _digest(source: str, made: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    text = json.dumps([source, made, arrays], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
