"""The messages of a saved fluid program, as tables for the codec.

These are the proto2 messages of package `paddle.framework.proto` of release 1.8.5 (spec G.3), and
the attribute types that releases up to 3.0 added, as found in their files. The codec is
`compiler.ir.model_format.protobuf`, which also reads and writes what others `declare`.
"""

from __future__ import annotations

from enum import IntEnum

from compiler.ir.types import VarTypeId
from compiler.support.dataclass import dataclass

__all__ = ["ENUMS", "SCHEMA", "AttrType", "Field", "VarTypeId", "declare"]


class AttrType(IntEnum):
    """The type of an `OpDesc.Attr`; those above 11 are of later releases."""

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOLEAN = 6
    BOOLEANS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11
    FLOAT64S = 12
    VAR = 13
    VARS = 14
    FLOAT64 = 15
    SCALAR = 16
    SCALARS = 17


@dataclass(frozen=True, slots=True)
class Field:
    """A row of a table; `kind` names a scalar or a message, `where` is message and field.

    `enum` is the name of the numbers of a field whose kind is "enum".
    """

    number: int
    name: str
    label: str
    kind: str
    default: int | float | str | bytes | None
    where: str
    repeated: bool
    enum: str = ""


_MESSAGES = """
ProgramDesc
    1 repeated BlockDesc blocks
    3 optional OpCompatibleMap op_compatible_map
    4 optional Version version
Version
    1 optional int64 version
BlockDesc
    1 required int32 idx
    2 required int32 parent_idx
    3 repeated VarDesc vars
    4 repeated OpDesc ops
    5 optional int32 forward_block_idx = -1
VarDesc
    1 required string name
    2 required VarType type
    3 optional bool persistable
    4 optional bool need_check_feed
VarType
    1 required VarType.Type type
    2 optional VarType.TensorDesc selected_rows
    3 optional VarType.LoDTensorDesc lod_tensor
    4 optional VarType.LoDTensorArrayDesc tensor_array
    5 optional VarType.ReaderDesc reader
    7 optional VarType.Tuple tuple
VarType.TensorDesc
    1 required VarType.Type data_type
    2 repeated int64 dims
VarType.LoDTensorDesc
    1 required VarType.TensorDesc tensor
    2 optional int32 lod_level
VarType.LoDTensorArrayDesc
    1 required VarType.TensorDesc tensor
    2 optional int32 lod_level
VarType.ReaderDesc
    1 repeated VarType.LoDTensorDesc lod_tensor
VarType.Tuple
    1 repeated VarType.Type element_type
OpDesc
    1 repeated OpDesc.Var inputs
    2 repeated OpDesc.Var outputs
    3 required string type
    4 repeated OpDesc.Attr attrs
    5 optional bool is_target
OpDesc.Var
    1 required string parameter
    2 repeated string arguments
OpDesc.Attr
    1 required string name
    2 required AttrType type
    3 optional int32 i
    4 optional float f
    5 optional string s
    6 repeated int32 ints
    7 repeated float floats
    8 repeated string strings
    10 optional bool b
    11 repeated bool bools
    12 optional int32 block_idx
    13 optional int64 l
    14 repeated int32 blocks_idx
    15 repeated int64 longs
    16 repeated double float64s
    17 optional string var_name
    18 repeated string vars_name
    19 optional double float64
    20 optional Scalar scalar
    21 repeated Scalar scalars
Scalar
    1 required int32 type
    2 optional bool b
    3 optional int64 i
    4 optional double r
    5 optional Complex c
Complex
    1 required double r
    2 required double i
OpCompatibleMap
    1 repeated OpCompatibleMap.OpCompatiblePair pair
    2 optional string default_required_version
OpCompatibleMap.OpCompatiblePair
    1 required string op_name
    2 required CompatibleInfo compatible_info
CompatibleInfo
    1 required string version
    2 required CompatibleInfo.Type type
OpProto
    1 required string type
    2 repeated OpProto.Var inputs
    3 repeated OpProto.Var outputs
    4 repeated OpProto.Attr attrs
    5 required string comment
OpProto.Var
    1 required string name
    2 required string comment
    3 optional bool duplicable
    4 optional bool intermediate
    5 optional bool dispensable
OpProto.Attr
    1 required string name
    2 required AttrType type
    3 required string comment
    4 optional bool generated
"""

_ZEROS: dict[str, int | float | str | bytes] = {
    "int32": 0, "int64": 0, "uint32": 0, "uint64": 0, "enum": 0,
    "float": 0.0, "double": 0.0, "bool": False, "string": "", "bytes": b"",
}  # fmt: skip


ENUMS: dict[str, dict[str, int]] = {
    "AttrType": {each.name: each.value for each in AttrType},
    "VarType.Type": {each.name: each.value for each in VarTypeId},
    "CompatibleInfo.Type": {
        "COMPATIBLE": 0, "DEFINITELY_NOT": 1, "POSSIBLE": 2, "BUG_FIX": 3, "PRECISION_CHANGE": 4,
    },
}  # fmt: skip
"""The numbers of each enum, by name."""

SCHEMA: dict[str, tuple[Field, ...]] = {}
"""The fields of each message, by number."""


def declare(tables: str, package: str = "") -> None:
    """Add messages and enums of a package to the tables, in the format of those above.

    An enum is a line `enum NAME VALUE=NUMBER …`, or several; it is followed by what refers to it.
    With a package, names are full ones: `paddle.TableParameter`.
    """
    prefix = f"{package}." if package else ""
    message = ""
    for line in tables.strip("\n").split("\n"):
        words = line.split()
        if words[0] == "enum":
            pairs = [word.split("=") for word in words[2:]]
            numbers = ENUMS.setdefault(prefix + words[1], {})
            numbers |= {name: int(number) for name, number in pairs}
        elif line.startswith(" "):
            SCHEMA[message] += (_field(message, prefix, words),)
        else:
            message = prefix + line
            SCHEMA[message] = ()


def _field(message: str, prefix: str, words: list[str]) -> Field:
    number, label, kind, name = words[:4]
    if prefix and kind not in _ZEROS and kind not in SCHEMA:
        kind = prefix + kind
    enum, where = kind if kind in ENUMS else "", f"{message}.{name}"
    kind = "enum" if enum else kind
    default = _default(kind, words[5]) if words[4:] else _ZEROS.get(kind)
    return Field(int(number), name, label, kind, default, where, label == "repeated", enum)


def _default(kind: str, word: str) -> int | float | str:
    if kind == "bool":
        return word == "true"
    if kind == "string":
        return word.strip("'")
    return float(word) if kind in ("float", "double") else int(word)


declare(_MESSAGES)
