"""Requests and responses of single calls: four bytes, the length of a header, JSON, raw data."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from compiler.ir.types import Array
from runtime.errors import WireError
from runtime.ps.wire.layout import CHUNK_BYTES

_MAGIC = 0x4A535046
MAX_HEADER_BYTES = 1 << 20
"""Maximum bytes of a header: parsed, JSON takes up to twenty times as many."""
MAX_ROWS = 1 << 17
"""Maximum number of rows that one call requests."""
MAX_RANK = 9
"""Maximum number of axes of an array."""
_HEAD = struct.Struct("<II")


def pack(header: Mapping[str, Any], raw: bytes = b"") -> bytes:
    """Pack a header and raw data into a message."""
    text = json.dumps(header).encode()
    return _HEAD.pack(_MAGIC, len(text)) + text + raw


def unpack(message: bytes) -> tuple[dict[str, Any], memoryview]:
    """Unpack header and raw data. Raises WireError if the message is malformed."""
    if len(message) < _HEAD.size:
        raise WireError(f"a call of {len(message)} bytes is shorter than its header")
    magic, size = _HEAD.unpack_from(message)
    if magic != _MAGIC or size > len(message) - _HEAD.size:
        raise WireError(f"a call begins with {magic:#x} and claims a header of {size} bytes")
    header = read_header(message[_HEAD.size : _HEAD.size + size])
    return header, memoryview(message)[_HEAD.size + size :]


def read_header(text: bytes) -> dict[str, Any]:
    """Parse a header. Raises WireError if it is no JSON object, or too large."""
    if len(text) > MAX_HEADER_BYTES:
        raise WireError(f"a header has {len(text)} bytes, expected {MAX_HEADER_BYTES} at most")
    try:
        header: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header of a call is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise WireError(f"the header of a call is a {type(header).__name__}, expected an object")
    return cast("dict[str, Any]", header)


def first_message(messages: Iterator[bytes]) -> bytes:
    """Return the first message of a stream. Raises WireError for an empty stream."""
    for message in messages:
        return message
    raise WireError("a stream ended before its first message")


def field(header: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return a field of a header. Raises WireError if it is missing or of another type."""
    value = header.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise WireError(
            f"field {name!r} of a call must be {kind.__name__}, but is {type(value).__name__}"
        )
    return value


def names_field(header: Mapping[str, Any], name: str) -> list[str]:
    """Return a field that is a list of different texts. Raises WireError if it is not."""
    values: list[Any] = field(header, name, list)
    if not all(isinstance(value, str) for value in values):
        raise WireError(f"field {name!r} of a call must be a list of names")
    if len(set(values)) < len(values):
        twice = next(repeated for repeated, count in Counter(values).items() if count > 1)
        raise WireError(f"field {name!r} of a call has {twice[:200]!r} twice, expected it once")
    return values


def array_field(header: Mapping[str, Any], raw: memoryview) -> Array:
    """Decode raw data as an array described by `dtype` and `shape`; WireError if it does not
    match.
    """
    dtype, shape = field(header, "dtype", str), field(header, "shape", list)
    is_valid = all(isinstance(size, int) and 0 <= size < 1 << 40 for size in shape)
    if len(shape) > MAX_RANK or not is_valid:
        sizes = f"{MAX_RANK} sizes at most"
        raise WireError(f"the shape of an array must be {sizes}, but is {str(shape)[:200]}")
    kind = known_dtype(dtype)
    if prod(shape) * kind.itemsize != len(raw):
        raise WireError(f"an array of {dtype} {shape} has {len(raw)} bytes")
    return np.frombuffer(raw, kind).reshape(shape)


def known_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a name. Raises WireError for one that no tensor has."""
    if name not in _DTYPES:
        raise WireError(f"{name[:200]!r} is not a dtype; expected one of {', '.join(_DTYPES)}")
    return np.dtype(name)


def value_messages(arrays: Sequence[Array]) -> Iterator[bytes]:
    """Split arrays into messages, one array after another."""
    for array in arrays:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, len(raw), CHUNK_BYTES):
            yield raw[start : start + CHUNK_BYTES].tobytes()


def read_values(described: Sequence[Any], messages: Iterator[bytes], most: int) -> list[Array]:
    """Read arrays from messages; each is described as [dtype, shape].

    Raises WireError if they have more than `most` bytes, or do not match the descriptions.
    """
    shapes = [(known_dtype(str(dtype)), tuple(int(n) for n in shape)) for dtype, shape in described]
    sizes = [prod(shape) * dtype.itemsize for dtype, shape in shapes]
    if any(size < 0 for size in sizes) or sum(sizes) > most:
        raise WireError(f"a server claims {sum(sizes)} bytes, expected {most} at most")
    vector, end = np.empty(sum(sizes), np.uint8), 0
    for message in messages:
        if end + len(message) > len(vector):
            raise WireError(f"a server sent more than the {len(vector)} bytes it announced")
        vector[end : end + len(message)] = np.frombuffer(message, np.uint8)
        end += len(message)
    if end != len(vector):
        raise WireError(f"a server sent {end} of the {len(vector)} bytes it announced")
    parts = np.split(vector, np.cumsum(sizes)[:-1]) if sizes else []
    return [part.view(t).reshape(s) for part, (t, s) in zip(parts, shapes, strict=True)]


_DTYPES = (
    "float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"
)  # fmt: skip
