"""Modules for the CPU on disk, so that the next process need not compile an equal program.

A module that was compiled over parameters is kept with the arrays that the compilation computed of
them, such as folded weights; the digest of the parameters is part of what decides its name.

An entry is a JSON file, with a file of bytes beside it where there are arrays. It is named by the
digest of all that decides the code: the program, feeds, fetches, options, the compiler's own files
and the versions of Python and NumPy. It appears whole or not at all; one whose bytes are not those
that were written is thrown away. Entries that were not used for longest go when there is too much
of them.

The source is executed as it is found, so the folder has to be the user's alone, which
`compiler.private_folders` checks; digests detect damage, and would not stop an attacker.
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
from itertools import accumulate
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
"""Bytes of a file beyond which it is none of ours."""


@dataclass(frozen=True)
class ModuleStore:
    """Modules below a folder, `limit` bytes of them at most."""

    root: Path
    limit: int

    @staticmethod
    def from_env() -> ModuleStore | None:
        """The store of this user; None where it keeps nothing, or others can write to it."""
        kept = Cache.from_env(kind="modules")
        usable = kept.limit > 0 and is_private(kept.folder, "FLUID_CACHE")
        return ModuleStore(kept.folder, kept.limit) if usable else None

    def find(
        self, key: str, options: Options, params: MutableMapping[str, Array] | None = None
    ) -> Module | None:
        """The module that was put under a key; None where there is none, or a damaged one.

        The arrays that were put with it are added to `params`.
        """
        place = self._place(key)
        try:
            if place.stat().st_size > _LARGEST:
                return None
            entry = json.loads(place.read_bytes())
            module = _module(entry, options)
            arrays = _arrays(self._beside(key), entry["arrays"])
            for used in (place, self._beside(key))[: 1 + bool(arrays)]:
                os.utime(used)  # the time of its last use
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
        """Keep a module, with arrays. A disk that is full or locked keeps nothing, nor are arrays
        kept that take more than half of the limit.
        """
        added = arrays or {}
        if 2 * sum(each.nbytes for each in added.values()) > self.limit:
            return
        data = b"".join(each.tobytes() for each in added.values())
        held: dict[str, Any] = {}
        with suppress(OSError):
            if added:
                each = [[name, array.dtype.name, array.shape] for name, array in added.items()]
                held = {"each": each, "sha256": hashlib.sha256(data).hexdigest()}
                self._write(self._beside(key), data)
            self._write(self._place(key), json.dumps(_entry(module, held)).encode())
            trim({each: each for each in self.root.iterdir()}, self.limit)

    def _write(self, place: Path, data: bytes) -> None:
        """Make a file that is whole or is not there."""
        with NamedTemporaryFile(dir=self.root, prefix=".draft-", delete=False) as draft:
            draft.write(data)
        Path(draft.name).replace(place)

    def _beside(self, key: str) -> Path:
        """The file with the arrays of an entry."""
        return self.root / f"{key}.arrays"

    def _place(self, key: str) -> Path:
        return self.root / f"{key}.json"


def module_key(target: str, options: Options, *made_of: object) -> str:
    """The digest of what decides a module's code, and of the compiler that writes it."""
    chosen = {each.name: getattr(options, each.name) for each in fields(options)}
    chosen["disable"] = sorted(options.disable)
    decided = (target, chosen, made_of, _compiler_digest(), sys.version_info[:3], np.__version__)
    return hashlib.sha256(repr(decided).encode()).hexdigest()


def params_digest(params: Mapping[str, Array], names: Iterable[str]) -> str:
    """The digest of those of `names` that are in `params`: types, shapes and every byte."""
    digest = hashlib.sha256()
    for name in sorted({*names}):
        array = params.get(name)
        if array is not None:
            digest.update(repr((name, array.dtype.name, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


@cache
def _compiler_digest() -> str:
    """The digest of names, times and sizes of the compiler's files."""
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
    """What is written of a module; its options are part of the key."""
    record = module.record
    made = {} if record is None else {
        "packed": base64.b64encode(record.packed).decode(),
        "milliseconds": dict(record.milliseconds),
    }  # fmt: skip
    digest = _sum(module.source, made, held)
    return {"source": module.source, "made": made, "arrays": held, "sha256": digest}


def _arrays(place: Path, held: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays of an entry, each in memory of its own; ValueError where they were damaged."""
    if not held:
        return {}
    types = [(name, DType.of(dtype).numpy, shape) for name, dtype, shape in held["each"]]
    sizes = [dtype.itemsize * prod(shape) for _, dtype, shape in types]
    if place.stat().st_size != sum(sizes):
        raise ValueError("the arrays were damaged")
    data = place.read_bytes()
    if hashlib.sha256(data).hexdigest() != held["sha256"]:
        raise ValueError("the arrays were damaged")
    found: dict[str, Array] = {}
    for (name, dtype, shape), start in zip(types, accumulate(sizes, initial=0), strict=False):
        flat = np.frombuffer(data, dtype, prod(shape), start)
        found[name] = flat.reshape(shape).copy()
    return found


def _module(entry: Mapping[str, Any], options: Options) -> Module:
    """The module of an entry; ValueError where it is not what was written."""
    source, made = entry["source"], entry["made"]
    if entry["sha256"] != _sum(source, made, entry["arrays"]):
        raise ValueError("the entry was damaged")
    module = Module.parse(source)
    record = None
    if made:
        start = base64.b64decode(made["packed"])
        record = Record(start, module.target, options, made["milliseconds"])
    return replace(module, record=record, memory_limit=options.memory_limit_bytes)


def _sum(source: str, made: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    text = json.dumps([source, made, arrays], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
