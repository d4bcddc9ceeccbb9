"""What kinds of messages, fields and enums have, with the interface of protobuf's descriptors.

`google.protobuf.text_format` and `json_format` read and write messages by these alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import ClassVar

from compiler.ir.model_format.schema import ENUMS, SCHEMA, Field
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass

__all__ = ["Descriptor", "EnumDescriptor", "FieldDescriptor", "descriptor_of"]

_PACKAGE = "paddle.framework.proto"
_TYPES = (
    "double float int64 uint64 int32 fixed64 fixed32 bool string group message bytes uint32 enum "
    "sfixed32 sfixed64 sint32 sint64"
).split()
_CPP_TYPES = "int32 int64 uint32 uint64 double float bool enum string message".split()
_CPP_NAMES = {
    "bytes": "string", "sint32": "int32", "sfixed32": "int32", "fixed32": "uint32",
    "sint64": "int64", "sfixed64": "int64", "fixed64": "uint64", "group": "message",
}  # fmt: skip


def _full(kind: str) -> str:
    return kind if kind.startswith("paddle.") else f"{_PACKAGE}.{kind}"


@dataclass(frozen=True)
class Options:
    """The options of a message or a field: none is set."""

    map_entry: ClassVar[bool] = False
    message_set_wire_format: ClassVar[bool] = False


@dataclass(frozen=True)
class FileDescriptor:
    """The file that declares a message."""

    name: str
    package: str


class _Declared:
    """What messages, fields and enums have in common: a file, and no options."""

    has_options: ClassVar[bool] = False
    full_name: str

    @property
    def file(self) -> FileDescriptor:
        """The file of the declaration."""
        package = _PACKAGE if self.full_name.startswith(_PACKAGE) else "paddle"
        return FileDescriptor("framework.proto", package)

    def GetOptions(self) -> Options:
        """The options."""
        return Options()


@dataclass(frozen=True)
class EnumValueDescriptor:
    """A number of an enum."""

    name: str
    number: int


class EnumDescriptor(_Declared):
    """An enum: its values by name and by number."""

    is_closed: ClassVar[bool] = True

    def __init__(self, kind: str) -> None:
        self.name, self.full_name = kind.rpartition(".")[2], _full(kind)
        self.values = [EnumValueDescriptor(*pair) for pair in ENUMS[kind].items()]
        self.values_by_name = {value.name: value for value in self.values}
        self.values_by_number = {value.number: value for value in self.values}


class FieldDescriptor(_Declared):
    """A field of a message; `label` is 1 for optional, 2 for required, 3 for repeated ones.

    `type` and `cpp_type` are protobuf's numbers, `FieldDescriptor.TYPE_STRING` and its like.
    """

    LABEL_OPTIONAL: ClassVar[int] = 1
    LABEL_REQUIRED: ClassVar[int] = 2
    LABEL_REPEATED: ClassVar[int] = 3
    TYPES: ClassVar[Mapping[str, int]] = {name: at for at, name in enumerate(_TYPES, 1)}
    CPP_TYPES: ClassVar[Mapping[str, int]] = {name: at for at, name in enumerate(_CPP_TYPES, 1)}

    is_extension: ClassVar[bool] = False
    containing_oneof: ClassVar[None] = None
    extension_scope: ClassVar[None] = None

    def __init__(self, owner: Descriptor, field: Field) -> None:
        self.name, self.number = field.name, field.number
        self.full_name = f"{owner.full_name}.{field.name}"
        self.containing_type = owner
        self.label = ("optional", "required", "repeated").index(field.label) + 1
        empty: list[object] = []
        self.default_value = empty if field.repeated else field.default
        kind = "message" if field.kind in SCHEMA else "enum" if field.enum else field.kind
        self.type = self.TYPES[kind]
        self.cpp_type = self.CPP_TYPES[_CPP_NAMES.get(kind, kind)]
        head, *rest = field.name.split("_")
        self.json_name = head + "".join(part.capitalize() for part in rest)
        self._field = field

    @property
    def is_repeated(self) -> bool:
        """Whether it is a list."""
        return self.label == self.LABEL_REPEATED

    @property
    def is_required(self) -> bool:
        """Whether it must be set."""
        return self.label == self.LABEL_REQUIRED

    @property
    def has_presence(self) -> bool:
        """Whether it can be unset."""
        return not self.is_repeated

    @property
    def message_type(self) -> Descriptor | None:
        """The kind of message that it holds."""
        return descriptor_of(self._field.kind) if self._field.kind in SCHEMA else None

    @cached_property
    def enum_type(self) -> EnumDescriptor | None:
        """The enum whose numbers it holds."""
        return EnumDescriptor(self._field.enum) if self._field.enum else None


for _name, _number in FieldDescriptor.TYPES.items():
    setattr(FieldDescriptor, f"TYPE_{_name.upper()}", _number)
for _name, _number in FieldDescriptor.CPP_TYPES.items():
    setattr(FieldDescriptor, f"CPPTYPE_{_name.upper()}", _number)


class Descriptor(_Declared):
    """What a kind of message has: its names and fields."""

    is_extendable: ClassVar[bool] = False

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name, self.full_name = kind.rpartition(".")[2], _full(kind)
        self.fields = [FieldDescriptor(self, row) for row in SCHEMA[kind]]
        self.fields_by_name = {field.name: field for field in self.fields}
        self.fields_by_number = {field.number: field for field in self.fields}

    @property
    def containing_type(self) -> Descriptor | None:
        """The kind of message that declares this one inside of it."""
        outer = self.kind.rpartition(".")[0]
        return descriptor_of(outer) if outer in SCHEMA else None


@cache
def descriptor_of(kind: str) -> Descriptor:
    """The descriptor of a kind of message of the tables."""
    return Descriptor(kind)
