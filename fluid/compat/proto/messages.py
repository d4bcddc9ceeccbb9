"""Messages and enums with the interface of protobuf's Python package, over tables of fields."""

from __future__ import annotations

from typing import Any, ClassVar

from compiler.ir.model_format.protobuf import Message, ProtoError, dump, parse
from compiler.ir.model_format.schema import ENUMS, SCHEMA, Field
from fluid.compat.proto.descriptors import Descriptor, FieldDescriptor, descriptor_of
from fluid.compat.proto.fields import Repeated, checked
from fluid.recording.proto_text import message_text

__all__ = ["EnumType", "FieldDescriptor", "ProtoMessage"]


class EnumType:
    """An enum of the tables: numbers by name."""

    def __init__(self, kind: str) -> None:
        self._name, self._numbers = kind.rpartition(".")[2], dict(ENUMS[kind])

    def Name(self, number: int) -> str:
        """The name of a number; ValueError where it has none."""
        names = [name for name, code in self._numbers.items() if code == number]
        if not names:
            raise ValueError(f"Enum {self._name} has no name defined for value {number!r}")
        return names[0]

    def Value(self, name: str) -> int:
        """The number of a name; ValueError where there is none of that name."""
        if name not in self._numbers:
            raise ValueError(f"Enum {self._name} has no value defined for name {name!r}")
        return self._numbers[name]

    def keys(self) -> list[str]:
        """All names."""
        return list(self._numbers)

    def values(self) -> list[int]:
        """All numbers."""
        return list(self._numbers.values())

    def items(self) -> list[tuple[str, int]]:
        """All names with their numbers."""
        return list(self._numbers.items())

    def __getattr__(self, name: str) -> int:
        if name.startswith("_") or name not in self._numbers:
            raise AttributeError(f"enum {self._name} has no value {name!r}")
        return self._numbers[name]


class ProtoMessage:
    """A message whose fields are listed in the tables under its name.

    An unset field reads as its default, and a nested message is created when one of its fields is
    set.
    """

    DESCRIPTOR: ClassVar[Descriptor]
    _kind: ClassVar[str]
    _fields: ClassVar[dict[str, Field]]
    _kinds: ClassVar[dict[str, type[ProtoMessage]]] = {}

    def __init_subclass__(cls, package: str = "") -> None:
        kind = cls._kind = f"{package}.{cls.__qualname__}" if package else cls.__qualname__
        cls.DESCRIPTOR = descriptor_of(kind)  # pyright: ignore[reportConstantRedefinition] - its name
        cls._fields = {field.name: field for field in SCHEMA[kind]}
        cls._kinds[kind] = cls
        for enum in [value for value in vars(cls).values() if isinstance(value, EnumType)]:
            for name, number in enum.items():
                setattr(cls, name, number)

    def __init__(self, **fields: object) -> None:
        self._forget()
        vars(self)["_above"] = None
        for name, value in fields.items():
            self._fill(name, value)

    def _forget(self) -> None:
        vars(self).update(_values={}, _unknown=(), _is_set=False)

    def _fill(self, name: str, value: object) -> None:
        field = self._field(name, ValueError)
        if field.repeated:
            getattr(self, name).extend(value)
        elif field.kind in SCHEMA:
            getattr(self, name).CopyFrom(value)
        else:
            setattr(self, name, value)

    # ---- fields ----

    def __getattr__(self, name: str) -> Any:
        field = self._field(name, AttributeError)
        if name not in self._values and (field.repeated or field.kind in SCHEMA):
            self._values[name] = self._part(field)
        return self._values.get(name, field.default)

    def __setattr__(self, name: str, value: object) -> None:
        field = self._field(name, AttributeError)
        if field.repeated or field.kind in SCHEMA:
            what = "repeated field" if field.repeated else "field"
            raise AttributeError(
                f'Assignment not allowed to {what} "{name}" in protocol message object.'
            )
        self._values[name] = checked(field, value)
        self._touch()

    def _field(self, name: str, error: type[Exception]) -> Field:
        if name not in self._fields:
            raise error(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._fields[name]

    def _part(self, field: Field) -> Repeated | ProtoMessage:
        """An empty repeated field, or an unset message, that notifies this message of changes."""
        make = self._kinds.get(field.kind)
        if field.repeated:
            return Repeated(field, make, self._touch)
        assert make is not None
        part = make()
        vars(part)["_above"] = self
        return part

    def _touch(self) -> None:
        vars(self)["_is_set"] = True
        if self._above is not None:
            self._above._touch()

    SetInParent = _touch

    def HasField(self, name: str) -> bool:
        """Whether a single field is set; ValueError for what is no single field."""
        field = self._field(name, ValueError)
        if field.repeated:
            kind = type(self).__name__
            raise ValueError(f'Protocol message {kind} has no singular "{name}" field.')
        return self._holds(name)

    def _holds(self, name: str) -> bool:
        value = self._values.get(name)
        return value._is_set if isinstance(value, ProtoMessage) else value not in (None, [])

    def ClearField(self, name: str) -> None:
        """Reset a field to its unset state."""
        self._field(name, ValueError)
        self._values.pop(name, None)

    def Clear(self) -> None:
        """Reset all fields to their unset state."""
        self._forget()

    def ListFields(self) -> list[tuple[FieldDescriptor, Any]]:
        """The fields that are set, by number."""
        set_names = [name for name in self._fields if self._holds(name)]
        return [(self.DESCRIPTOR.fields_by_name[name], self._values[name]) for name in set_names]

    # ---- copies ----

    def MergeFrom(self, other: ProtoMessage) -> None:
        """Take over what is set in another message; lists are appended to."""
        if type(other) is not type(self):
            kind = type(self).__name__
            raise TypeError(f"expected a {kind}, given a {type(other).__name__}")
        for descriptor, value in other.ListFields():
            mine = getattr(self, descriptor.name)
            if isinstance(value, list | ProtoMessage):
                mine.MergeFrom(value)
            else:
                setattr(self, descriptor.name, value)
        vars(self)["_unknown"] = (*self._unknown, *other._unknown)
        self._touch()

    def CopyFrom(self, other: ProtoMessage) -> None:
        """Be equal to another message."""
        if other is not self:
            self.Clear()
            self.MergeFrom(other)

    def __deepcopy__(self, memo: object) -> ProtoMessage:
        copied = type(self)()
        copied.CopyFrom(self)
        return copied

    def __copy__(self) -> ProtoMessage:
        return self.__deepcopy__(None)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).FromString, (self.SerializePartialToString(),)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._message() == self._message()

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    # ---- bytes and text ----

    def MergeFromString(self, data: bytes) -> int:
        """Take over what bytes hold; how many there are. Raises ProtoError for malformed ones."""
        is_bytes = isinstance(data, bytes | bytearray | memoryview)  # pyright: ignore[reportUnnecessaryIsInstance] - str
        if not is_bytes:
            kind = type(data).__name__
            raise TypeError(f"a bytes-like object is required, not {kind!r}")
        self._read(parse(bytes(data), self._kind))
        return len(data)

    def ParseFromString(self, data: bytes) -> int:
        """Be what bytes hold."""
        self.Clear()
        return self.MergeFromString(data)

    @classmethod
    def FromString(cls, data: bytes) -> ProtoMessage:
        """The message that bytes hold."""
        message = cls()
        message.MergeFromString(data)
        return message

    def _read(self, message: Message) -> None:
        for name, value in message.values.items():
            for item in value if isinstance(value, tuple) else (value,):
                self._read_item(self._fields[name], item)
        vars(self)["_unknown"] = (*self._unknown, *message.unknown)
        self._touch()

    def _read_item(self, field: Field, item: object) -> None:
        if field.kind in SCHEMA:
            part = getattr(self, field.name)
            (part.add() if field.repeated else part)._read(item)
        elif field.repeated:
            getattr(self, field.name).append_read(item)
        else:
            self._values[field.name] = item

    def _message(self) -> Message:
        pairs = [(field.name, value) for field, value in self.ListFields()]
        values = {name: self._frozen(value) for name, value in pairs}
        return Message(self._kind, values, self._unknown)

    @staticmethod
    def _frozen(value: object) -> Any:
        if isinstance(value, ProtoMessage):
            return value._message()
        return tuple(map(ProtoMessage._frozen, value)) if isinstance(value, Repeated) else value

    def SerializeToString(self, **options: object) -> bytes:
        """The bytes of the message; ProtoError where a required field is not set."""
        return dump(self._message())

    def SerializePartialToString(self, **options: object) -> bytes:
        """The bytes of the message, complete or not."""
        return dump(self._message(), partial=True)

    def ByteSize(self) -> int:
        """How many bytes the message has."""
        return len(self.SerializePartialToString())

    def IsInitialized(self) -> bool:
        """Whether all required fields are set, here and in the messages inside."""
        try:
            self.SerializeToString()
        except ProtoError:
            return False
        return True

    def text(self, shortest: bool = False) -> str:
        """The message in protobuf's text format.

        Floats are printed as doubles, as protobuf's `str` does, or `shortest`, as its `text_format`
        does: with no more digits than they are recognized by.
        """
        return message_text(self._message(), shortest)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__
