"""An on-disk cache of what writing steps does, so that programs with equal layers share kernels.

An entry is one file for each step that was written: a SHA-256 of the rest, then compressed JSON
with the kernels' texts and the events. Its name is the digest of all that the step's code depends
on: its form, what is known of sizes before it, the machine, thresholds, and the compiler itself.

Kernels are compiled and executed as they are read, so only the user may have write access to the
folder, which `compiler.support.private_folders` checks; digests detect damage, but not an attack.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from compiler.codegen.module_store import sources_digest
from compiler.codegen.native.commands.repeated_steps import (
    BlocksBegun,
    BlocksEnded,
    Called,
    Event,
    OfSize,
    Prepared,
    Scratch,
    Wanted,
)
from compiler.codegen.native.kernel import NativeKernel
from compiler.ir.dims import Size, parse_size
from compiler.ir.types import DType
from compiler.options import Cache
from compiler.support.private_folders import (
    is_due,
    is_private,
    private_folder,
    trim,
)
from compiler.support.settings.fluid import FLUID_CACHE
from compiler.support.thresholds import lowered_values

ENTRY = re.compile(r"[0-9a-f]{64}\.step")
"""The names of entries."""
_LARGEST = 16 << 20
"""Most bytes of an entry, compressed or not; larger files are not from this cache."""
_SUM = hashlib.sha256().digest_size
_DAMAGES = OSError, ValueError, LookupError, TypeError, zlib.error


class StepStore:
    """Recorded steps in a folder, at most `limit` bytes; those added are written by `keep`."""

    def __init__(self, root: Path, limit: int) -> None:
        self._root, self._limit = root, limit
        self._added: dict[str, Sequence[Event]] = {}

    @staticmethod
    def from_env() -> StepStore | None:
        """Return this user's store; None if it is disabled or others can write to its folder."""
        storage = Cache.from_env(kind="steps")
        usable = storage.limit > 0 and is_private(storage.folder, FLUID_CACHE)
        return StepStore(storage.folder, storage.limit) if usable else None

    def find(self, form: Hashable) -> list[Event] | None:
        """The events of a step of this form; None if they are missing, or damaged: then removed."""
        name = f"{_key(form)}.step"
        with suppress(OSError), private_folder(self._root) as folder:
            try:
                events = _decoded(folder.read(name, _LARGEST))
                folder.touch(name)
            except FileNotFoundError:
                return None
            except _DAMAGES:
                folder.remove(name)
                return None
            return events
        return None

    def add(self, form: Hashable, events: Sequence[Event]) -> None:
        """Keep the events of a step for `keep` to write."""
        self._added[_key(form)] = events

    def keep(self) -> None:
        """Write what was added, and trim; nothing is written if the disk is full or read-only."""
        added, self._added = self._added, {}
        if not added:
            return
        with suppress(OSError), private_folder(self._root) as folder:
            written = 0
            for key, events in added.items():
                entry = _encoded(events)
                folder.write(f"{key}.step", [entry])
                written += len(entry)
            if is_due(next(iter(added)), written, self._limit):
                trim(folder, {name: name for name in folder.names()}, self._limit)


def _key(form: Hashable) -> str:
    decided = form, sorted(lowered_values().items()), sources_digest()
    return hashlib.sha256(repr(decided).encode()).hexdigest()


# ---- entries -----------------------------------------------------------------------------------


def _encoded(events: Sequence[Event]) -> bytes:
    kernels: dict[int, tuple[int, NativeKernel]] = {}

    def number(kernel: NativeKernel) -> int:
        return kernels.setdefault(id(kernel), (len(kernels), kernel))[0]

    listed = [_event_fields(event, number) for event in events]
    texts = [_kernel_fields(kernel) for _, kernel in kernels.values()]
    return _packed([texts, listed])


def _packed(fields: list[Any]) -> bytes:
    entry = zlib.compress(json.dumps(fields).encode(), 1)
    return hashlib.sha256(entry).digest() + entry


def _kernel_fields(kernel: NativeKernel) -> list[Any]:
    sizes = map(_size_field, (kernel.units, kernel.flops, kernel.nbytes))
    return [kernel.name, kernel.text(), *sizes]


def _event_fields(event: Event, number: Callable[[NativeKernel], int]) -> list[Any]:
    """The fields of an event; an argument is the number of an array, or a size in a list."""
    match event:
        case Wanted(value):
            return ["wanted", value]
        case Called(kernel, arguments):
            listed = [[_size_field(a.size)] if isinstance(a, OfSize) else a for a in arguments]
            return ["called", number(kernel), listed]
        case Scratch(shape, dtype):
            return ["scratch", [*map(_size_field, shape)], dtype.name]
        case Prepared(kernel, inputs, sizes, shape, dtype):
            listed = [*map(_size_field, sizes)], [*map(_size_field, shape)]
            return ["prepared", number(kernel), [*inputs], *listed, dtype.name]
        case BlocksBegun(count):
            return ["begin", _size_field(count)]
        case BlocksEnded():
            return ["end"]


def _size_field(size: Size) -> int | str:
    return size if isinstance(size, int) else str(size)


def _decoded(stored: bytes) -> list[Event]:
    """The events of an entry; one of `_DAMAGES` if it is none."""
    entry = stored[_SUM:]
    if hashlib.sha256(entry).digest() != stored[:_SUM]:
        raise ValueError("the entry was damaged")
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(entry, _LARGEST)
    if unpacking.unconsumed_tail:
        raise ValueError("the entry is too large")
    texts, listed = json.loads(text)
    kernels = [
        NativeKernel((), *map(_size, sizes), stored=(name, text)) for name, text, *sizes in texts
    ]
    return [_event(kernels, kind, fields) for kind, *fields in listed]


def _event(kernels: Sequence[NativeKernel], kind: str, fields: list[Any]) -> Event:
    match kind, len(fields):
        case "wanted", 1:
            return Wanted(fields[0])
        case "called", 2:
            kernel, arguments = fields
            return Called(kernels[int(kernel)], tuple(map(_argument, arguments)))
        case "scratch", 2:
            return Scratch(_sizes(fields[0]), DType[fields[1]])
        case "prepared", 5:
            kernel, inputs, sizes, shape, dtype = fields
            made = _sizes(sizes), _sizes(shape), DType[dtype]
            return Prepared(kernels[int(kernel)], tuple(inputs), *made)
        case "begin", 1:
            return BlocksBegun(_size(fields[0]))
        case "end", 0:
            return BlocksEnded()
        case _:
            raise ValueError(f"{kind} is no event")


def _argument(field: Any) -> int | OfSize:
    return field if isinstance(field, int) else OfSize(_size(field[0]))


def _sizes(fields: Sequence[int | str]) -> tuple[Size, ...]:
    return tuple(map(_size, fields))


def _size(field: int | str) -> Size:
    return field if isinstance(field, int) else _parsed(field)


_parsed = lru_cache(1024)(parse_size)
