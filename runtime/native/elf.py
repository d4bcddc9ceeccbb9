"""Reads ELF relocatable object files: sections, symbols and relocations, all bounds checked.

Source: the System V ABI, chapter 4 (object files), for 64-bit little-endian objects. Nothing that
is read is trusted: an object that is malformed, or has what LLVM does not emit for kernels, raises
BadObject.

llvmlite can load objects, too. In a new process that takes 25 ms and 45 MB of memory, here 0.3 ms
and less than 0.1 MB (`python -m bench.native_calls`); and packages run where it is not installed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from compiler.errors import CompileError
from compiler.support.dataclass import dataclass

X86, ARM = 62, 183
"""ELF's numbers of the architectures: x86-64 and AArch64."""

_MOST = 64 << 20
"""Most bytes of an object."""
_MOST_SECTIONS = 4096
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_PROGBITS, _SYMTAB, _RELA, _REL = 1, 2, 4, 9
_WRITE, _ALLOC, _EXECUTE, _TLS = 1, 2, 4, 0x400
_UNDEFINED, _RESERVED = 0, 0xFF00
_GLOBAL_FUNCTION = 1 << 4 | 2
_UNWIND = ".eh_frame"
"""Tables for unwinding: kernels neither throw nor catch."""


class BadObject(CompileError):
    """An object file is malformed, or has something that kernels do not have."""


@dataclass(frozen=True)
class Section:
    """A section that is loaded: its bytes, alignment, and whether it holds instructions."""

    data: bytes
    align: int
    executable: bool


@dataclass(frozen=True)
class Symbol:
    """A symbol: in a section at an offset; `section` is None if it is defined elsewhere.

    `is_entry` is true for functions that other objects can call.
    """

    name: str
    section: int | None
    offset: int
    is_entry: bool


@dataclass(frozen=True)
class Relocation:
    """A place in a section to be filled in with an address, in a way that `kind` says."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Object:
    """An object file: loaded sections by number, symbols, and relocations of those sections."""

    architecture: int
    sections: dict[int, Section]
    symbols: list[Symbol]
    relocations: list[Relocation]


@dataclass(frozen=True)
class _Entry:
    """An entry of the section table."""

    name: int
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


def parse(data: bytes) -> Object:
    """Parse an object file; raise BadObject if it is malformed or not a kernel's."""
    try:
        return _parse(data)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise BadObject(f"an object file is malformed: {error}") from error


def _parse(data: bytes) -> Object:
    _expect(len(data) <= _MOST, f"has {len(data)} bytes")
    architecture, entries, names = _entries(data)
    sections = dict(_loaded(data, entries, names))
    symbols = [
        symbol
        for entry in entries
        if entry.kind == _SYMTAB
        for symbol in _symbols(data, entry, entries, sections)
    ]
    _expect(sum(entry.kind == _SYMTAB for entry in entries) <= 1, "has several symbol tables")
    relocations = list(_relocations(data, entries, sections, len(symbols)))
    return Object(architecture, sections, symbols, relocations)


def _entries(data: bytes) -> tuple[int, list[_Entry], bytes]:
    """Return the architecture, the section table and the section names."""
    head: tuple[Any, ...] = _HEADER.unpack_from(data)
    ident, kind, architecture = head[:3]
    _expect(ident[:7] == b"\x7fELF\x02\x01\x01" and kind == 1, "is not 64-bit little-endian ELF")
    _expect(architecture in (X86, ARM), f"is for architecture {architecture}")
    start, size, count, names = (int(head[place]) for place in (6, 11, 12, 13))
    _expect(size == _SECTION.size and 0 < count <= _MOST_SECTIONS, "has no table of sections")
    table = _slice(data, start, size * count)
    # address (3) is 0 in objects
    entries = [_Entry(*row[:3], *row[4:]) for row in _SECTION.iter_unpack(table)]
    _expect(names < count, "has no section names")
    return architecture, entries, _slice(data, entries[names].offset, entries[names].size)


def _loaded(data: bytes, entries: list[_Entry], names: bytes) -> Iterator[tuple[int, Section]]:
    """Yield the numbers and contents of the sections that a program has in memory."""
    left = len(data)  # no section shares its bytes with another
    for number, entry in enumerate(entries):
        if not entry.flags & _ALLOC or not entry.size or _text(names, entry.name) == _UNWIND:
            continue
        name = _text(names, entry.name)
        state = entry.flags & _WRITE and not name.startswith(".data.rel.ro")
        _expect(not state and not entry.flags & _TLS, f"has writable data in section {name}")
        _expect(entry.kind == _PROGBITS, f"has section {name} of type {entry.kind}")
        left -= entry.size
        _expect(left >= 0, f"has sections of more than {len(data)} bytes")
        align = max(1, entry.align)
        _expect(align <= 4096 and not align & (align - 1), f"aligns {name} to {align} bytes")
        content = _slice(data, entry.offset, entry.size)
        yield number, Section(content, align, bool(entry.flags & _EXECUTE))


def _symbols(
    data: bytes, table: _Entry, entries: list[_Entry], sections: dict[int, Section]
) -> Iterator[Symbol]:
    """Yield the symbols of a symbol table, in order."""
    strings = _slice(data, entries[table.link].offset, entries[table.link].size)
    content = _slice(data, table.offset, table.size)
    for name, info, _, number, value, size in _SYMBOL.iter_unpack(content):
        text = _text(strings, name)
        if number == _UNDEFINED or number >= _RESERVED or number not in sections:
            yield Symbol(text, None, 0, False)
            continue
        inside = value + size <= len(sections[number].data)
        _expect(inside, f"has symbol {text!r} outside of its section")
        yield Symbol(text, number, value, info == _GLOBAL_FUNCTION)


def _relocations(
    data: bytes, entries: list[_Entry], sections: dict[int, Section], symbols: int
) -> Iterator[Relocation]:
    """Yield the relocations of loaded sections."""
    for entry in entries:
        if entry.kind not in (_RELA, _REL) or entry.info not in sections:
            continue
        _expect(entry.kind == _RELA, "has relocations without addends")
        size = len(sections[entry.info].data)
        for offset, info, addend in _RELOCATION.iter_unpack(_slice(data, entry.offset, entry.size)):
            symbol = info >> 32
            _expect(offset < size and symbol < symbols, "has a relocation that points nowhere")
            yield Relocation(entry.info, offset, info & 0xFFFFFFFF, symbol, addend)


def _slice(data: bytes, start: int, size: int) -> bytes:
    """Return bytes of the file; BadObject if it is shorter."""
    _expect(start + size <= len(data), f"ends before byte {start + size}")
    return data[start : start + size]


def _text(strings: bytes, start: int) -> str:
    """Return the zero-terminated name at an offset of a table of strings."""
    end = strings.find(b"\0", start)
    _expect(start <= end, "has a name outside of its table")
    return strings[start:end].decode()


def _expect(condition: bool, reason: str) -> None:
    if not condition:
        raise BadObject(f"an object file {reason}")
