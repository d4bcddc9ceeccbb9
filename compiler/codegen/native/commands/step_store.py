"""An on-disk cache of what writing steps does, so that programs with equal layers share kernels.

An entry is one file for each step that was written, compressed JSON with the kernels' texts and the
events. Its name is the digest of all that the step's code depends on: its form, what is known of
sizes before it, the machine, thresholds, and the compiler itself.

Kernels are compiled and executed as they are read, so only the user may have write access to the
folder, which `compiler.support.private_folders` checks; digests detect damage, but not an attack.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
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
from compiler.support.digested_files import LARGEST, DigestedFiles
from compiler.support.private_folders import is_private
from compiler.support.settings.fluid import FLUID_CACHE
from compiler.support.thresholds import lowered_values

ENTRY = re.compile(r"[0-9a-f]{64}\.step")
"""The names of entries."""
_DAMAGES = ValueError, LookupError, TypeError, zlib.error


class StepStore:
    """Recorded steps on disk; those that are added are written by `keep`."""

    def __init__(self, files: DigestedFiles) -> None:
        self._files = files
        self._added: dict[str, Sequence[Event]] = {}

    @staticmethod
    def from_env() -> StepStore | None:
        """Return this user's store; None if it is disabled or others can write to its folder."""
        storage = Cache.from_env(kind="steps")
        usable = storage.limit > 0 and is_private(storage.folder, FLUID_CACHE)
        return StepStore(DigestedFiles(storage.folder, storage.limit, ".step")) if usable else None

    def find(self, form: Hashable) -> list[Event] | None:
        """The events of a step of this form; None if they are missing, or damaged: then removed."""
        key = _key(form)
        entry = self._files.find(key)
        if entry is None:
            return None
        try:
            return _decoded(entry)
        except _DAMAGES:
            self._files.remove(key)
            return None

    def add(self, form: Hashable, events: Sequence[Event]) -> None:
        """Keep the events of a step for `keep` to write."""
        self._added[_key(form)] = events

    def keep(self) -> None:
        """Write what was added; nothing if the disk is full or read-only."""
        added, self._added = self._added, {}
        self._files.put({key: _encoded(events) for key, events in added.items()})


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
    return zlib.compress(json.dumps(fields).encode(), 1)


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


def _decoded(entry: bytes) -> list[Event]:
    """The events of an entry; one of `_DAMAGES` if it is none."""
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(entry, LARGEST)
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
