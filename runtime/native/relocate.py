"""Fills in addresses in machine code: the relocations that LLVM emits for kernels.

Sources: the System V ABI, AMD64 supplement, table 4.9; ELF for the Arm 64-bit architecture,
section 5.7. S is the symbol's address, A the addend and P the address of the place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from runtime.native.elf import ARM, X86, BadObject

_PAGE = 4096

Apply = Callable[[bytearray, int, int, int], None]
"""Changes code at an offset, whose address is P, to refer to S + A: (code, offset, target, P)."""


def apply(
    architecture: int, kind: int, code: bytearray, offset: int, target: int, place: int
) -> None:
    """Fill in one relocation; BadObject if its kind is unknown, or if the target is too far."""
    apply_kind = _KINDS[architecture].get(kind)
    if apply_kind is None:
        raise BadObject(f"an object file has a relocation of unknown type {kind}")
    try:
        apply_kind(code, offset, target, place)
    except struct.error as error:
        raise BadObject(f"a relocation of type {kind} cannot be applied: {error}") from error


def stub(architecture: int, target: int) -> bytes:
    """Code that jumps to an address at any distance, for calls of functions outside the object."""
    if architecture == X86:
        return b"\xff\x25\x00\x00\x00\x00" + struct.pack("<Q", target) + b"\xcc\xcc"
    return struct.pack("<IIQ", 0x58000050, 0xD61F0200, target)  # ldr x16, +8; br x16


STUB_BYTES = 16


def _absolute64(code: bytearray, offset: int, target: int, _: int) -> None:
    struct.pack_into("<Q", code, offset, target & 0xFFFFFFFFFFFFFFFF)


def _relative32(code: bytearray, offset: int, target: int, place: int) -> None:
    struct.pack_into("<i", code, offset, target - place)


def _relative64(code: bytearray, offset: int, target: int, place: int) -> None:
    struct.pack_into("<q", code, offset, target - place)


def _branch26(code: bytearray, offset: int, target: int, place: int) -> None:
    """Set the distance of a `b` or `bl`, in instructions."""
    distance = target - place
    if distance % 4 or not -(1 << 27) <= distance < 1 << 27:
        raise BadObject(f"a branch over {distance} bytes is too far")
    _set_bits(code, offset, 0, 26, distance >> 2)


def _page21(code: bytearray, offset: int, target: int, place: int) -> None:
    """Set the distance of an `adrp`, in pages."""
    pages = target // _PAGE - place // _PAGE
    if not -(1 << 20) <= pages < 1 << 20:
        raise BadObject(f"an address {pages} pages away is too far")
    _set_bits(code, offset, 29, 2, pages)
    _set_bits(code, offset, 5, 19, pages >> 2)


def _address21(code: bytearray, offset: int, target: int, place: int) -> None:
    """Set the distance of an `adr`, in bytes."""
    distance = target - place
    if not -(1 << 20) <= distance < 1 << 20:
        raise BadObject(f"an address {distance} bytes away is too far")
    _set_bits(code, offset, 29, 2, distance)
    _set_bits(code, offset, 5, 19, distance >> 2)


def _low12(scale: int) -> Apply:
    """Set the offset within a page of an `add`, or of a load or store of `1 << scale` bytes."""

    def set_offset(code: bytearray, offset: int, target: int, _: int) -> None:
        low = target % _PAGE
        if low % (1 << scale):
            raise BadObject(f"an access of {1 << scale} bytes is not aligned")
        _set_bits(code, offset, 10, 12, low >> scale)

    return set_offset


def _set_bits(code: bytearray, offset: int, start: int, count: int, number: int) -> None:
    """Replace bits of an instruction."""
    (word,) = struct.unpack_from("<I", code, offset)
    mask = (1 << count) - 1
    word = word & ~(mask << start) | (number & mask) << start
    struct.pack_into("<I", code, offset, word)


_KINDS: dict[int, dict[int, Apply]] = {
    X86: {1: _absolute64, 2: _relative32, 4: _relative32, 24: _relative64},
    ARM: {
        257: _absolute64,
        260: _relative64,
        261: _relative32,
        274: _address21,
        275: _page21,
        277: _low12(0),
        278: _low12(0),
        282: _branch26,
        283: _branch26,
        284: _low12(1),
        285: _low12(2),
        286: _low12(3),
        299: _low12(4),
    },
}
"""By architecture and ELF's number of the type."""
