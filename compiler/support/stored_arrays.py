"""Named arrays in a file that is mapped into memory, for caches on disk.

A page is read when it is first used, is not copied, and is shared by all processes that map it.
Beside the file `NAME.arrays` is `NAME.arrays.json` with the name, dtype, shape and offset of each
array, a CRC-32 of the file, and its size, times and number as the system reports them. A file that
is still the one that was written is trusted, as the parameters of a model are; another one, such as
a copy, is compared with its checksum.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from compiler.ir.types import Array, DType
from compiler.support.private_folders import PrivateFolder

SUFFIX = ".arrays"
_ALIGNMENT = 64
"""Offsets of arrays are multiples of this many bytes: that of a cache line and a vector."""
_LARGEST = 16 << 20
"""Most bytes of the file of names; a larger one is not of this cache."""


def put_arrays(folder: PrivateFolder, name: str, arrays: Mapping[str, Array]) -> None:
    """Store arrays in a file and its `.json`, replacing others.

    Raises OSError if the disk is full; neither file remains then.
    """
    checksum = _Checksum()
    rows = [[name, array.dtype.name, array.shape] for name, array in arrays.items()]
    try:
        folder.write(name, checksum(_parts(arrays.values())))
        about = {"each": rows, "crc32": checksum.value, "file": _stamp(folder.stat(name))}
        folder.write(_about(name), [json.dumps(about).encode()])
    except BaseException:
        remove_arrays(folder, name)
        raise


def remove_arrays(folder: PrivateFolder, name: str) -> None:
    """Remove the files that `put_arrays` writes."""
    folder.remove(name)
    folder.remove(_about(name))


def map_arrays(folder: PrivateFolder, name: str) -> dict[str, Array]:
    """The arrays stored in a file: writable, but what is written stays in this process.

    Raises OSError if there are none, ValueError, KeyError or TypeError if they are damaged.
    """
    about = json.loads(folder.read(_about(name), _LARGEST))
    types = [(str(name), DType.of(dtype).numpy, shape) for name, dtype, shape in about["each"]]
    with folder.open(name) as file:
        status = os.fstat(file.fileno())
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if status.st_size else b""
    arrays = dict(_views(mapped, types))
    if about["file"] != _stamp(status) and zlib.crc32(mapped) != about["crc32"]:
        raise ValueError("the arrays were damaged")
    return arrays


def byte_view(array: Array) -> memoryview:
    """The bytes of an array, in C order; without a copy if they lie in memory like that."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class _Checksum:
    """The CRC-32 of the parts that pass through it."""

    value = 0

    def __call__(self, parts: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        for part in parts:
            self.value = zlib.crc32(part, self.value)
            yield part


def _parts(arrays: Iterable[Array]) -> Iterator[bytes | memoryview]:
    """The bytes of arrays, each followed by those up to the next aligned offset."""
    for array in arrays:
        yield byte_view(array)
        yield bytes(-array.nbytes % _ALIGNMENT)


def _views(
    held: bytes | mmap.mmap, types: Iterable[tuple[str, np.dtype[Any], list[int]]]
) -> Iterator[tuple[str, Array]]:
    """The arrays in mapped bytes; ValueError if these are more or less than all of them."""
    offset = 0
    for name, dtype, shape in types:
        nbytes = dtype.itemsize * prod(shape)
        if nbytes < 0 or offset + nbytes > len(held):
            raise ValueError(f"array {name!r} is not in its file")
        buffer = held if nbytes else None
        yield name, np.ndarray(shape, dtype, buffer, offset if nbytes else 0)
        offset += nbytes + -nbytes % _ALIGNMENT
    if offset != len(held):
        raise ValueError("the file of arrays has another size")


def _stamp(found: os.stat_result) -> list[int]:
    """What differs if a file is written again or copied."""
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _about(name: str) -> str:
    return f"{name}.json"
