"""Reads arrays of numbers from MATLAB files of level 5, which the labels of flowers are kept in.

The layout is that of "MAT-File Format" (The MathWorks): after 128 bytes come elements, each with a
type and a size; an array is an element of elements, and may be compressed as a whole.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from compiler.ir.types import Array

from .archive import MOST_BYTES

__all__ = ["load_arrays"]

HEADER = 128
NUMBERS: dict[int, str] = dict(
    zip((1, 2, 3, 4, 5, 6, 7, 9, 12, 13), "i1 u1 i2 u2 i4 u4 f4 f8 i8 u8".split(), strict=True)
)
MATRIX, COMPRESSED = 14, 15


def load_arrays(data: bytes) -> dict[str, Array]:
    """The arrays of numbers in the bytes of a file by name; other things in it are passed over.

    Raises ValueError for what is no such file.
    """
    order = {b"IM": "<", b"MI": ">"}.get(data[HEADER - 2 : HEADER])
    if order is None:
        raise ValueError("it is no MATLAB file of level 5")
    return dict(_arrays(data[HEADER:], order))


def _arrays(data: bytes, order: str) -> Iterator[tuple[str, Array]]:
    for kind, content in _elements(data, order):
        if kind == COMPRESSED:
            yield from _arrays(zlib.decompressobj().decompress(content, MOST_BYTES), order)
        elif kind == MATRIX:
            yield from _array(list(_elements(content, order)), order)


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Types and contents; what has four bytes or less may be packed into its own head."""
    start = 0
    while start < len(data):
        (word,) = struct.unpack_from(f"{order}I", data, start)
        kind, size, begin = word & 0xFFFF, word >> 16, start + 4
        if not size:
            (size,) = struct.unpack_from(f"{order}I", data, begin)
            begin += 4
        if begin + size > len(data):
            raise ValueError("it ends in the middle of an array")
        yield kind, data[begin : begin + size]
        padding = 0 if kind == COMPRESSED else -(begin + size) % 8
        start = begin + size + padding


def _array(parts: list[tuple[int, bytes]], order: str) -> Iterator[tuple[str, Array]]:
    """The array of flags, sizes, a name and numbers, if that is what they are."""
    if len(parts) < 4 or parts[3][0] not in NUMBERS:
        return
    shape = np.frombuffer(parts[1][1], f"{order}i4").tolist()
    kind, content = parts[3]
    numbers = np.frombuffer(content, order + NUMBERS[kind])
    if math.prod(shape) != numbers.size:
        raise ValueError(f"{numbers.size} numbers are no array of shape {shape}")
    yield parts[2][1].decode("ascii"), numbers.reshape(shape, order="F")
