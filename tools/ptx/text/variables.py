"""Variables of PTX: shared, local, global and constant memory with a name."""

from __future__ import annotations

import struct

from tools.ptx.instructions import BYTES, Variable
from tools.ptx.text.reader import Reader

STATE = (".shared", ".global", ".const", ".local")
_INTEGER = {1: "B", 2: "H", 4: "I", 8: "Q"}


def variable(read: Reader, space: str) -> Variable:
    """Read a variable's declaration after its state space, to the semicolon."""
    align, kind = 0, ""
    while (word := read.word())[0] == ".":
        if word == ".align":
            align = read.number()
        elif word[1:] in BYTES:
            kind = word[1:]
        elif word not in (".visible", ".attribute"):
            raise read.error(f"unexpected {word} of a variable")
    if not kind:
        raise read.error(f"the variable {word} has no type")
    size = BYTES[kind]
    count = read.array_size(1)
    data = _values(read, size) if read.peek() == "=" else b""
    read.take(";")
    if len(data) > count * size:
        raise read.error(f"{word} has {len(data)} bytes of values in {count * size} bytes")
    return Variable(word, space[1:], align or size, count * size, data)


def _values(read: Reader, size: int) -> bytes:
    read.take("=")
    if read.peek() != "{":
        return _packed(read, size)
    read.take("{")
    parts = [_packed(read, size)]
    while read.peek() == ",":
        read.take(",")
        parts.append(_packed(read, size))
    read.take("}")
    return b"".join(parts)


def _packed(read: Reader, size: int) -> bytes:
    sign = 1
    if read.peek() == "-":
        read.take("-")
        sign = -1
    word = read.word()
    try:
        value = int(word[2:], 16) if word[:2] in ("0f", "0F", "0d", "0D") else int(word, 0)
    except ValueError:
        raise read.error(f"{word} is not a number") from None
    return struct.pack("<" + _INTEGER[size], (sign * value) % (1 << 8 * size))
