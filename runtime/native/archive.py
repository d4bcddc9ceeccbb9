"""Archives of object files: one file for the kernels of a package, as `ar` and `objdump` read it.

Source: the System V format as GNU binutils writes it. A member has a header of 60 bytes; names are
in a table of their own, since they are long. Nothing that is read is trusted: an archive that is
malformed raises BadObject.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runtime.native.elf import BadObject

_MAGIC = b"!<arch>\n"
_HEADER = 60
_END = b"`\n"
_NAMES = b"//"
"""The name of the table of names."""


def archive(objects: Mapping[str, bytes]) -> bytes:
    """An archive of object files by name, without times or owners, so that equal input is equal.

    >>> unpacked(archive({"add": b"x", "softmax": b"yz"}))
    {'add': b'x', 'softmax': b'yz'}
    """
    table, places = b"", list[bytes]()
    for name in objects:
        places.append(b"/%d" % len(table))
        table += name.encode() + b"/\n"
    members = zip(places, objects.values(), strict=True)
    return b"".join([_MAGIC, _member(_NAMES, table), *(_member(*member) for member in members)])


def _member(name: bytes, content: bytes) -> bytes:
    header = b"%-16s%-12d%-6d%-6d%-8o%-10d" % (name, 0, 0, 0, 0o644, len(content))
    return header + _END + content + b"\n" * (len(content) % 2)


def unpacked(data: bytes) -> dict[str, bytes]:
    """The object files in an archive by name; BadObject if it is malformed."""
    _expect(data.startswith(_MAGIC), "it does not begin as one")
    table, members = b"", dict[str, bytes]()
    for name, content in _members(data):
        if name == _NAMES:
            table = content
            continue
        member = _long_name(name, table)
        _expect(member not in members, f"it has two members {member!r}")
        members[member] = content
    return members


def _members(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the names and contents of the members."""
    place = len(_MAGIC)
    while place < len(data):
        header = data[place : place + _HEADER]
        _expect(len(header) == _HEADER and header.endswith(_END), "a header is malformed")
        size = _number(header[48:58])
        start = place + _HEADER
        _expect(start + size <= len(data), f"a member has {size} bytes, more than the archive")
        yield header[:16].rstrip(), data[start : start + size]
        place = start + size + size % 2


def _long_name(name: bytes, table: bytes) -> str:
    """The name that a header refers to by its place in the table of names."""
    _expect(name[:1] == b"/", f"{name!r} is not in its table of names")
    text, end, _ = table[_number(name[1:]) :].partition(b"/\n")
    _expect(bool(end) and text.isascii(), f"{name!r} is not in its table of names")
    return text.decode("ascii")


def _number(text: bytes) -> int:
    digits = text.rstrip(b" ")
    _expect(digits.isdigit() and len(digits) <= 10, f"{text!r} is not a number")
    return int(digits)


def _expect(holds: bool, reason: str) -> None:
    if not holds:
        raise BadObject(f"an archive of object files is malformed: {reason}")
