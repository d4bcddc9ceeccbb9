"""Modules for the CPU on disk, so that the next process need not compile an equal program.

An entry is one JSON file named by the digest of all that decides the code: the program, feeds,
fetches, options, the compiler's own files and the versions of Python and NumPy. It appears whole or
not at all; one whose bytes are not those that were written is thrown away. Entries that were not
used for longest go when there is too much of them.

The source is executed as it is found, so the folder has to be the user's alone, which
`compiler.private_folders` checks; digests detect damage, and would not stop an attacker.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from compiler.codegen.module import Module
from compiler.errors import ParseError
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

    def find(self, key: str, options: Options) -> Module | None:
        """The module that was put under a key; None where there is none, or a damaged one."""
        place = self._place(key)
        try:
            if place.stat().st_size > _LARGEST:
                return None
            module = _module(json.loads(place.read_bytes()), options)
            os.utime(place)  # the time of its last use
        except FileNotFoundError:
            return None
        except _DAMAGES:
            with suppress(OSError):
                place.unlink()
            return None
        return module

    def put(self, key: str, module: Module) -> None:
        """Keep a module. A disk that is full or locked keeps nothing."""
        with suppress(OSError):
            with NamedTemporaryFile("w", dir=self.root, prefix=".draft-", delete=False) as draft:
                json.dump(_entry(module), draft)
            Path(draft.name).replace(self._place(key))
            trim({each: each for each in self.root.iterdir()}, self.limit)

    def _place(self, key: str) -> Path:
        return self.root / f"{key}.json"


def module_key(target: str, options: Options, *made_of: object) -> str:
    """The digest of what decides a module's code, and of the compiler that writes it."""
    chosen = {each.name: getattr(options, each.name) for each in fields(options)}
    chosen["disable"] = sorted(options.disable)
    decided = (target, chosen, made_of, _compiler_digest(), sys.version_info[:3], np.__version__)
    return hashlib.sha256(repr(decided).encode()).hexdigest()


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


def _entry(module: Module) -> dict[str, Any]:
    """What is written of a module; its options are part of the key."""
    record = module.record
    made = {} if record is None else {
        "packed": base64.b64encode(record.packed).decode(),
        "milliseconds": dict(record.milliseconds),
    }  # fmt: skip
    return {"source": module.source, "made": made, "sha256": _sum(module.source, made)}


def _module(entry: Mapping[str, Any], options: Options) -> Module:
    """The module of an entry; ValueError where it is not what was written."""
    source, made = entry["source"], entry["made"]
    if entry["sha256"] != _sum(source, made):
        raise ValueError("the entry was damaged")
    module = Module.parse(source)
    record = None
    if made:
        start = base64.b64decode(made["packed"])
        record = Record(start, module.target, options, made["milliseconds"])
    return replace(module, record=record, memory_limit=options.memory_limit_bytes)


def _sum(source: str, made: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([source, made], sort_keys=True).encode()).hexdigest()
