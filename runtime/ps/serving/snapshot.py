"""Snapshots of a server: all its variables after one step, in one file that is replaced atomically.

The file is eight bytes, the length of a header (uint64), the header (JSON: step, arrays, additional
server state), and the arrays consecutively.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.errors import WireError
from runtime.ps.wire.packets import known_dtype

_MAGIC = b"FPSSNAP1"
_LENGTH = struct.Struct("<Q")
MAX_HEADER_BYTES = 64 << 20
"""Maximum bytes of a header."""


@dataclass(frozen=True)
class Snapshot:
    """The variables of a server after a step, and `extra`, serialisable as JSON."""

    step: int
    arrays: Mapping[str, Array]
    extra: Mapping[str, Any]


def snapshot_path(folder: str, endpoint: str) -> Path:
    """The path of a server's snapshot."""
    return Path(folder) / f"{endpoint.replace(':', '_').replace('/', '_')}.snapshot"


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write and sync a file, then atomically replace the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    described = [[n, str(a.dtype), list(a.shape)] for n, a in snapshot.arrays.items()]
    header = {"step": snapshot.step, "arrays": described, "extra": snapshot.extra}
    text = json.dumps(header).encode()
    temporary = path.with_suffix(f".{os.getpid()}.part")
    with temporary.open("wb") as file:
        file.write(_MAGIC + _LENGTH.pack(len(text)) + text)
        for array in snapshot.arrays.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def read_snapshot(path: Path) -> Snapshot | None:
    """Read the snapshot of a file, or return None if there is no file.

    Raises WireError naming the file if it is not a snapshot, or is damaged.
    """
    if not path.exists():
        return None
    raw = np.fromfile(path, np.uint8)
    try:
        return _parsed(raw)
    except (ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
        hint = "remove it to start from the startup program"
        raise WireError(f"{path} is not a complete snapshot: {error}", hint=hint) from error


def _parsed(raw: Array) -> Snapshot:
    head = raw[: len(_MAGIC) + _LENGTH.size].tobytes()
    if head[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it does not start with the magic bytes")
    (size,) = _LENGTH.unpack(head[len(_MAGIC) :])
    if size > min(MAX_HEADER_BYTES, len(raw)):
        raise ValueError(f"its header claims {size} bytes")
    end = len(head) + size
    header = json.loads(raw[len(head) : end].tobytes())
    arrays: dict[str, Array] = {}
    for name, dtype, shape in header["arrays"]:
        kind = known_dtype(dtype)
        stop = end + prod(shape) * kind.itemsize
        if min(shape, default=0) < 0 or stop > len(raw):
            raise ValueError(f"{name!r} is {shape}, which is beyond its end")
        arrays[str(name)] = raw[end:stop].copy().view(kind).reshape(shape)
        end = stop
    return Snapshot(int(header["step"]), arrays, dict(header["extra"]))


def _sync_folder(folder: Path) -> None:
    """Make a rename durable: a folder is synced like a file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
