"""A codec for the protobuf messages of a saved fluid program (`__model__`).

Table-driven and free of dependencies, whereas generated modules work with a single version of the
protobuf runtime. Unknown fields, such as the version map of later releases, are kept as raw bytes
in place: `dump(parse(data))` reproduces a real file. No message type contains itself, so the tables
bound the nesting depth.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import NoReturn, TypeAlias, TypeVar, cast

from compiler.ir.model_format.schema import SCHEMA, AttrType, Field, VarTypeId
from compiler.support.dataclass import dataclass

__all__ = ["BOUNDS", "AttrType", "Message", "ProtoError", "VarTypeId", "build", "dump", "parse"]

Item: TypeAlias = "int | float | str | bytes | Message"
Value: TypeAlias = "Item | tuple[Item, ...]"
ItemType = TypeVar("ItemType", bound="int | float | str | bytes | Message")


class ProtoError(ValueError):
    """An error in reading or writing a message; `offset` is the byte where reading stopped."""

    def __init__(self, what: str, offset: int | None = None) -> None:
        super().__init__(what if offset is None else f"byte {offset}: {what}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Message:
    """One protobuf message: its kind, its set fields by name, and unknown fields.

    `unknown` holds (tag, bytes after the tag) of fields that are not in the tables.

    >>> relu = build("OpDesc", type="relu", is_target=False)
    >>> relu.one("type", str), relu.many("attrs", Message), relu.has("is_target")
    ('relu', (), True)
    """

    kind: str
    values: Mapping[str, Value]
    unknown: tuple[tuple[int, bytes], ...] = ()

    def has(self, name: str) -> bool:
        """Return whether field `name` is set. Raises ProtoError if the kind has no such field."""
        return _field(self.kind, name).name in self.values

    def one(self, name: str, item_type: type[ItemType]) -> ItemType:
        """Return the value of a singular field, or its default.

        Raises ProtoError if the field is unknown, repeated or of another type, or an unset message.
        """
        field = _field(self.kind, name)
        value = self.values.get(name, field.default)
        if field.repeated or not isinstance(value, item_type):
            unset = "" if name in self.values else " and not set"
            requested = f"{field.kind}{unset}; one {item_type.__name__} was requested"
            raise ProtoError(f"{field.where} is {field.label} {requested}")
        return value

    def many(self, name: str, item_type: type[ItemType]) -> tuple[ItemType, ...]:
        """Return the values of a repeated field in order, `()` if none is set.

        Raises ProtoError if the field is unknown, singular or of another type.
        """
        field = _field(self.kind, name)
        if not field.repeated or _codec(field).item_type is not item_type:
            requested = f"{field.kind}; many {item_type.__name__} were requested"
            raise ProtoError(f"{field.where} is {field.label} {requested}")
        return cast("tuple[ItemType, ...]", self.values.get(name, ()))


def build(kind: str, /, **values: Item | Sequence[Item]) -> Message:
    """Build a message of `kind` from fields by name. Raises ProtoError for an unknown field.

    >>> dump(build("VarType.TensorDesc", data_type=VarTypeId.FP32, dims=[128, 10])).hex()
    '0805108001100a'
    """
    fields = _layout(kind).by_name
    frozen: dict[str, Value] = {}
    for name, value in values.items():
        field = fields.get(name) or _field(kind, name)
        if (item := _frozen(field, value)) != ():
            frozen[name] = item
    return Message(kind, frozen)


def parse(data: bytes, message: str = "ProgramDesc") -> Message:
    """Parse a message; never allocates memory by a length read from the data.

    Raises ProtoError, with the byte where reading stopped, for data that is truncated or is not
    such a message. Data truncated between two fields of the outermost message cannot be
    distinguished from a shorter message: check required fields with `has`.
    """
    return _read_fields(data, 0, len(data), _layout(message))


def dump(message: Message, partial: bool = False) -> bytes:
    """Serialise a message, fields by number and lists unpacked, as the reference does.

    Raises ProtoError for a missing required field, unless the message may be `partial`, and for a
    value that its field cannot hold.
    """
    if not partial:
        _check_complete(message)
    return _dump_fields(message)


def _check_complete(message: Message) -> None:
    """Raise ProtoError if a message, or a nested one, lacks a required field."""
    layout, values = _layout(message.kind), message.values
    for name in layout.required:
        if name not in values:
            raise ProtoError(f"{message.kind} lacks the required field {name}")
    for name in layout.nested:
        value = values.get(name, ())
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Message):
                _check_complete(item)


def _dump_fields(message: Message) -> bytes:
    writers = _layout(message.kind).writers
    parts: list[tuple[int, bytes]] = []
    for name, value in message.values.items():
        field, tag, write = writers.get(name) or writers[_field(message.kind, name).name]
        if field.repeated:
            if not isinstance(value, tuple):
                _raise_mismatch(field, value)
            raw = b"".join([tag + write(item, field) for item in value])
        elif isinstance(value, tuple):
            _raise_mismatch(field, value)
        else:
            raw = tag + write(value, field)
        parts.append((field.number, raw))
    parts += [(tag >> 3, _varint_bytes(tag) + raw) for tag, raw in message.unknown]
    parts.sort(key=_number_of)
    return b"".join([raw for _, raw in parts])


_number_of = itemgetter(0)


def _layout(kind: str) -> _Layout:
    if kind not in _LAYOUTS:
        if kind not in SCHEMA:
            raise ProtoError(f"there is no message {kind!r}; there are {', '.join(SCHEMA)}")
        _LAYOUTS[kind] = _Layout(kind, SCHEMA[kind])
    return _LAYOUTS[kind]


def _field(kind: str, name: str) -> Field:
    fields = _layout(kind).by_name
    if name not in fields:
        raise ProtoError(f"{kind} has no field {name!r}; it has {', '.join(fields)}")
    return fields[name]


def _frozen(field: Field, value: Item | Sequence[Item]) -> Value:
    if isinstance(value, _ITEMS):
        return float(value) if field.kind in _FLOATS and isinstance(value, int) else value
    if field.kind in _FLOATS:
        return tuple([float(item) if isinstance(item, int) else item for item in value])
    return tuple(value)


# ---- reading: each reader maps (data, position, end, field) to (item, next position) ----


def _read_fields(data: bytes, position: int, end: int, layout: _Layout) -> Message:
    start = position
    by_name: dict[str, list[Item]] = {}
    unknown: list[tuple[int, bytes]] = []
    known = layout.by_tag
    while position < end:
        offset, tag = position, data[position]
        if tag < 0x80:
            position += 1
        else:
            tag, position = _read_varint(data, position, end, layout.kind)
        if found := known.get(tag):
            field, read = found
            item, position = read(data, position, end, field)
            if field.name in by_name:
                by_name[field.name].append(item)
            else:
                by_name[field.name] = [item]
        elif field := layout.by_packed_tag.get(tag):
            items, position = _read_packed(data, position, end, field)
            by_name.setdefault(field.name, []).extend(items)
        else:
            _check_unknown(tag, layout, offset)
            raw, position = _read_raw(data, position, end, tag, layout)
            unknown.append((tag, raw))
    return Message(layout.kind, _collected(by_name, layout, start), tuple(unknown))


def _collected(found: dict[str, list[Item]], layout: _Layout, start: int) -> dict[str, Value]:
    """Collect field values: one item for a singular field, a tuple for a repeated one.

    Raises ProtoError for a missing required field or a repeated singular one.
    """
    for name in layout.required:
        if name not in found:
            raise ProtoError(f"{layout.kind} has no {name} (a required field)", start)
    values: dict[str, Value] = {}
    for name, items in found.items():
        if name in layout.repeated:
            if items:
                values[name] = tuple(items)
        elif len(items) == 1:
            values[name] = items[0]
        else:
            raise ProtoError(f"{layout.kind}.{name} appears {len(items)} times, not once", start)
    return values


def _read_varint(data: bytes, position: int, end: int, where: str) -> tuple[int, int]:
    if position < end and data[position] < 0x80:
        return data[position], position + 1
    value = 0
    for count in range(_LONGEST_VARINT):
        if position + count >= end:
            raise ProtoError(f"{where}: the data ends inside a varint", end)
        byte = data[position + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80 and value < 1 << 64:
            return value, position + count + 1
    raise ProtoError(f"{where}: expected a varint of 64 bits, got a longer one", position)


def _read_span(data: bytes, position: int, end: int, where: str) -> tuple[int, int]:
    """Return the start and end of length-delimited bytes."""
    length, begin = _read_varint(data, position, end, where)
    if length > end - begin:
        what = f"{where}: expected {length} bytes, got the {end - begin} that remain"
        raise ProtoError(what, begin)
    return begin, begin + length


def _read_integer(data: bytes, position: int, end: int, field: Field) -> tuple[int, int]:
    value, after = _read_varint(data, position, end, field.where)
    if value < 0x80:
        return value, after
    lowest, bound = BOUNDS[field.kind]
    signed = value - (1 << 64) if lowest and value >> 63 else value
    if not lowest <= signed < bound:
        raise ProtoError(f"{field.where}: expected an {field.kind}, got {signed}", position)
    return signed, after


def _read_bool(data: bytes, position: int, end: int, field: Field) -> tuple[bool, int]:
    value, after = _read_varint(data, position, end, field.where)
    return value != 0, after


def _read_float(data: bytes, position: int, end: int, field: Field) -> tuple[float, int]:
    layout = _FLOATS[field.kind]
    if end - position < layout.size:
        raise ProtoError(f"{field.where}: the data ends inside a {field.kind}", end)
    return layout.unpack_from(data, position)[0], position + layout.size


def _read_string(data: bytes, position: int, end: int, field: Field) -> tuple[str, int]:
    begin, stop = _read_span(data, position, end, field.where)
    return data[begin:stop].decode("utf-8", _ESCAPE), stop


def _read_bytes(data: bytes, position: int, end: int, field: Field) -> tuple[bytes, int]:
    begin, stop = _read_span(data, position, end, field.where)
    return data[begin:stop], stop


def _read_message(data: bytes, position: int, end: int, field: Field) -> tuple[Message, int]:
    begin, stop = _read_span(data, position, end, field.where)
    return _read_fields(data, begin, stop, _layout(field.kind)), stop


def _read_packed(data: bytes, position: int, end: int, field: Field) -> tuple[list[Item], int]:
    position, stop = _read_span(data, position, end, field.where)
    items: list[Item] = []
    while position < stop:
        item, position = _codec(field).read(data, position, stop, field)
        items.append(item)
    return items, stop


def _check_unknown(tag: int, layout: _Layout, offset: int) -> None:
    """Raise ProtoError for an invalid tag; other unknown tags may be of later releases."""
    number, wire = tag >> 3, tag & 7
    if not 0 < number < 1 << 29:
        raise ProtoError(f"{layout.kind}: there is no field number {number}", offset)
    if wire not in _WIRES:
        raise ProtoError(f"{layout.kind} field {number}: there is no wire type {wire}", offset)
    for field in layout.by_name.values():
        if field.number == number:
            expected, got = _WIRES[_codec(field).wire], _WIRES[wire]
            raise ProtoError(f"{field.where}: expected {expected}, got {got}", offset)


def _read_raw(data: bytes, position: int, end: int, tag: int, layout: _Layout) -> tuple[bytes, int]:
    """Return the raw bytes of an unknown field, including its length."""
    where = f"{layout.kind} field {tag >> 3}"
    wire = tag & 7
    if wire == _VARINT:
        stop = _read_varint(data, position, end, where)[1]
    elif wire == _LENGTH:
        stop = _read_span(data, position, end, where)[1]
    else:
        stop = position + (4 if wire == _FIXED32 else 8)
    if stop > end:
        raise ProtoError(f"{where}: the data ends inside {_WIRES[wire]}", end)
    return data[position:stop], stop


# ---- writing: each writer maps (item, field) to the bytes after the tag ----


def _varint_bytes(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _SHORT_VARINTS[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _span_bytes(raw: bytes) -> bytes:
    size = len(raw)
    return (_SHORT_VARINTS[size] if size < 0x80 else _varint_bytes(size)) + raw


def _write_integer(item: Item, field: Field) -> bytes:
    lowest, bound = BOUNDS[field.kind]
    if not isinstance(item, int) or not lowest <= item < bound:
        _raise_mismatch(field, item)
    return _varint_bytes(item)


def _write_bool(item: Item, field: Field) -> bytes:
    if not isinstance(item, bool):
        _raise_mismatch(field, item)
    return _varint_bytes(int(item))


def _write_float(item: Item, field: Field) -> bytes:
    if not isinstance(item, int | float):
        _raise_mismatch(field, item)
    try:
        return _FLOATS[field.kind].pack(item)
    except OverflowError:
        _raise_mismatch(field, item)


def _write_string(item: Item, field: Field) -> bytes:
    if not isinstance(item, str):
        _raise_mismatch(field, item)
    try:
        return _span_bytes(item.encode("utf-8", _ESCAPE))
    except UnicodeEncodeError:
        _raise_mismatch(field, item)


def _write_bytes(item: Item, field: Field) -> bytes:
    if not isinstance(item, bytes):
        _raise_mismatch(field, item)
    return _span_bytes(item)


def _write_message(item: Item, field: Field) -> bytes:
    if not isinstance(item, Message) or item.kind != field.kind:
        _raise_mismatch(field, item)
    return _span_bytes(_dump_fields(item))


def _raise_mismatch(field: Field, value: Value) -> NoReturn:
    actual = value.kind if isinstance(value, Message) else repr(value)
    raise ProtoError(f"{field.where}: expected {field.label} {field.kind}, got {actual}")


# ---- tables ----

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIRES = {_VARINT: "a varint", _FIXED64: "8 bytes", _LENGTH: "a length", _FIXED32: "4 bytes"}
_LONGEST_VARINT = 10
_SHORT_VARINTS = [bytes([value]) for value in range(0x80)]
BOUNDS = {
    **dict.fromkeys(("int32", "enum"), (-1 << 31, 1 << 31)),
    "int64": (-1 << 63, 1 << 63), "uint32": (0, 1 << 32), "uint64": (0, 1 << 64),
}  # fmt: skip
"""The lowest value of each kind of integer, and the bound above all."""
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_ESCAPE = "surrogateescape"  # proto2 strings may hold any bytes, which round-trip


@dataclass(frozen=True, slots=True)
class _Codec:
    """The encoding of a kind of field: wire type, Python type, reader and writer."""

    wire: int
    item_type: type[int] | type[float] | type[str] | type[bytes] | type[Message]
    read: Callable[[bytes, int, int, Field], tuple[Item, int]]
    write: Callable[[Item, Field], bytes]


_ITEMS = (int, float, str, bytes, Message)
_INTEGER = _Codec(_VARINT, int, _read_integer, _write_integer)
_MESSAGE = _Codec(_LENGTH, Message, _read_message, _write_message)
_CODECS = {
    **dict.fromkeys(BOUNDS, _INTEGER),
    "bool": _Codec(_VARINT, bool, _read_bool, _write_bool),
    "float": _Codec(_FIXED32, float, _read_float, _write_float),
    "double": _Codec(_FIXED64, float, _read_float, _write_float),
    "string": _Codec(_LENGTH, str, _read_string, _write_string),
    "bytes": _Codec(_LENGTH, bytes, _read_bytes, _write_bytes),
}


def _codec(field: Field) -> _Codec:
    return _CODECS.get(field.kind, _MESSAGE)


class _Layout:
    """The fields of a message, by name and by tag; `writers` have also tags and writers."""

    def __init__(self, kind: str, fields: tuple[Field, ...]) -> None:
        codecs = [(field, _codec(field)) for field in fields]
        self.kind = kind
        self.by_name = {field.name: field for field in fields}
        self.by_tag = {
            field.number << 3 | codec.wire: (field, codec.read) for field, codec in codecs
        }
        self.by_packed_tag = {
            field.number << 3 | _LENGTH: field
            for field, codec in codecs
            if field.repeated and codec.wire != _LENGTH
        }
        self.repeated = frozenset(field.name for field in fields if field.repeated)
        self.required = tuple(field.name for field in fields if field.label == "required")
        self.nested = tuple(field.name for field, codec in codecs if codec is _MESSAGE)
        self.writers = {
            field.name: (field, _varint_bytes(field.number << 3 | codec.wire), codec.write)
            for field, codec in codecs
        }


_LAYOUTS: dict[str, _Layout] = {}
"""The layout of each kind that was read or written."""
