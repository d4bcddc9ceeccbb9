"""Messages between trainers and servers: a header of 32 bytes, then raw little-endian data.

gRPC sends exactly `bytes`, so a message is allocated once and its data are computed in place.
A message is used only after `read_frame` has validated it.
"""

from __future__ import annotations

import ctypes
import struct
from enum import IntEnum

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from runtime.errors import WireError

MAGIC = 0x31535046
"""The first four bytes of every message: `FPS1`."""

_HEADER = struct.Struct("<IHHQQQ")
HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    """The kind of a message."""

    GRADIENT = 1
    """Part of a trainer's gradients of a step."""
    PARAMETER = 2
    """Part of a server's parameters after a step."""
    FAILED = 5
    """The data are an error message: why a step cannot be completed, UTF-8."""
    HELLO = 6
    """Opens an exchange; the data are JSON. `step` is the last one the sender has."""
    ROWS = 7
    """Part of a trainer's sparse gradient; `offset` is the number of the gradient (`rows.py`)."""
    BARRIER = 8
    """Ends a step of a trainer that has no gradient to send here."""


@dataclass(frozen=True)
class Frame:
    """One message: its kind, trainer, step, and the offset of its data.

    `offset` counts bytes from the start of a server's vector. `data` is uint8, a view of the
    received bytes.
    """

    kind: Kind
    trainer: int
    step: int
    offset: int
    data: Array
    ends: bool = False
    """Whether it is the trainer's last message of the step: an answer is expected."""


def new_frame(kind: Kind, trainer: int, step: int, offset: int, nbytes: int) -> tuple[bytes, Array]:
    """Allocate a message of zeros; returns it and a uint8 view [nbytes] to fill before it is sent.

    It is zeroed because it goes to a peer: what is not written must not be this process's memory.
    """
    message = bytes(HEADER_BYTES + nbytes)
    address = id(message) + bytes.__basicsize__ - 1
    memory = (ctypes.c_char * len(message)).from_address(address)
    _HEADER.pack_into(memory, 0, MAGIC, kind, trainer, step, offset, nbytes)
    view = np.frombuffer(memoryview(memory).cast("B"), np.uint8, offset=HEADER_BYTES)
    return message, view


def read_frame(message: bytes) -> Frame:
    """Parse a message. Raises WireError if it is malformed."""
    if len(message) < HEADER_BYTES:
        raise WireError(f"a message of {len(message)} bytes is shorter than its header")
    magic, marked, trainer, step, offset, nbytes = _HEADER.unpack_from(message)
    kind = marked & ~_ENDS
    if magic != MAGIC:
        raise WireError(f"a message begins with {magic:#x}, expected {MAGIC:#x}")
    if kind not in _KINDS:
        raise WireError(f"a message is of the kind {kind}, expected one of {sorted(_KINDS)}")
    if nbytes != len(message) - HEADER_BYTES:
        have = len(message) - HEADER_BYTES
        raise WireError(f"a message claims {nbytes} bytes of data, but has {have}")
    data = np.frombuffer(message, np.uint8, offset=HEADER_BYTES)
    return Frame(Kind(kind), trainer, step, offset, data, bool(marked & _ENDS))


def mark_end(message: bytes) -> None:
    """Mark an unsent message as the last of its step."""
    kind = _Uint16.from_address(id(message) + bytes.__basicsize__ - 1 + _KIND_OFFSET)
    kind.value |= _ENDS


def text_frame(kind: Kind, trainer: int, step: int, text: str) -> bytes:
    """A message whose data are UTF-8 text."""
    raw = text.encode(errors="backslashreplace")
    message, view = new_frame(kind, trainer, step, 0, len(raw))
    view[:] = np.frombuffer(raw, np.uint8)
    return message


_ENDS = 0x100
_KIND_OFFSET = 4
_Uint16 = ctypes.c_uint16.__ctype_le__
_KINDS = frozenset(int(kind) for kind in Kind)
