"""Damages files on purpose: changes bytes in place, or changes fields and re-encodes them.

Damaged bytes test the parser; damaged fields, which are well-formed, test the code that uses them.
All randomness is the caller's, so that the same seed damages the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from compiler.ir.model_format.protobuf import Message
from compiler.ir.program import EMPTY

TELLING_BYTES = (0, 1, 2, 3, 5, 7, 8, 15, 16, 0x7F, 0x80, 0xFF)
TELLING_INTEGERS = (0, 1, -1, 2, 3, 5, 7, 11, 17, 99, 1 << 20, (1 << 31) - 1, -(1 << 31))
TELLING_FLOATS = (0.0, -1.0, 1e30, float("inf"), float("nan"))
MAX_CHANGE = 40
"""Maximum bytes that one change removes, duplicates or invents."""
HEADER = 64
"""Bytes at the start of a file that every second change targets: sizes and types are there."""


def damaged_bytes(chance: Random, data: bytes, other: bytes) -> bytes:
    """The bytes after one to three changes; `other` provides pieces."""
    for _ in range(chance.randint(1, 3)):
        if data:
            reach = min(len(data), HEADER) if chance.random() < 0.5 else len(data)
            data = chance.choice(_CHANGES)(chance, data, chance.randrange(reach), other)
    return data


def damaged_fields(chance: Random, message: Message, words: Sequence[str]) -> Message:
    """The message after one or two changes to its fields, or to those of nested messages."""
    for _ in range(chance.randint(1, 2)):
        message = _changed(chance, message, words)
    return message


def words_of(message: Message) -> list[str]:
    """Every string in a message, to be confused with each other."""
    words: list[str] = []
    for value in message.values.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Message):
                words += words_of(item)
            elif isinstance(item, str):
                words.append(item)
    return words


# ---- bytes: each change takes (chance, data, where, other) ----


def _flip(chance: Random, data: bytes, at: int, other: bytes) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _tell(chance: Random, data: bytes, at: int, other: bytes) -> bytes:
    return data[:at] + bytes([chance.choice(TELLING_BYTES)]) + data[at + 1 :]


def _take_away(chance: Random, data: bytes, at: int, other: bytes) -> bytes:
    return data[:at] + data[at + chance.randint(1, MAX_CHANGE) :]


def _double(chance: Random, data: bytes, at: int, other: bytes) -> bytes:
    return data[:at] + data[at : at + chance.randint(1, MAX_CHANGE)] + data[at:]


def _make_up(chance: Random, data: bytes, at: int, other: bytes) -> bytes:
    return data[:at] + chance.randbytes(chance.randint(1, MAX_CHANGE)) + data[at:]


def _cut(chance: Random, data: bytes, at: int, other: bytes) -> bytes:
    return data[:at]


def _graft(chance: Random, data: bytes, at: int, other: bytes) -> bytes:
    start, length = chance.randrange(len(other)), chance.randint(1, MAX_CHANGE)
    return data[:at] + other[start : start + length] + data[at + length :]


def _oversized_length(chance: Random, data: bytes, at: int, other: bytes) -> bytes:
    """Insert a length as large as a varint can be."""
    return data[:at] + b"\xff" * chance.randint(1, 9) + b"\x01" + data[at + 1 :]


_CHANGES: tuple[Callable[[Random, bytes, int, bytes], bytes], ...] = (
    _flip, _tell, _take_away, _double, _make_up, _cut, _graft, _oversized_length,
)  # fmt: skip


# ---- fields ----


def _changed(chance: Random, message: Message, words: Sequence[str]) -> Message:
    if not message.values:
        return message
    name = chance.choice(sorted(message.values))
    value = message.values[name]
    if isinstance(value, tuple):
        value = _rearranged(chance, value, words)
    else:
        value = _other(chance, value, words)
    others = {key: field_value for key, field_value in message.values.items() if key != name}
    return replace(message, values=others if value == () else {**others, name: value})


def _rearranged(chance: Random, items: tuple, words: Sequence[str]) -> tuple:
    """Items with one of them dropped, duplicated, moved to the front or, mostly, changed."""
    at, how = chance.randrange(len(items)), chance.random()
    before, item, after = items[:at], items[at], items[at + 1 :]
    if how < 0.06:
        return before + after
    if how < 0.12:
        return (*before, item, item, *after)
    if how < 0.16:
        return (item, *before, *after)
    return (*before, _other(chance, item, words), *after)


def _other(chance: Random, item: int | float | str | Message, words: Sequence[str]):
    """Another value of the same kind."""
    if isinstance(item, Message):
        return _changed(chance, item, words)
    if isinstance(item, bool):
        return not item
    if isinstance(item, int):
        return chance.choice([*TELLING_INTEGERS, item + 1, item - 1, -item])
    if isinstance(item, float):
        return chance.choice([*TELLING_FLOATS, item * 2])
    return chance.choice([chance.choice(words), f"{item}x", item[:-1], "", "a/b", EMPTY])
