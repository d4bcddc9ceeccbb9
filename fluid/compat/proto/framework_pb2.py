"""Messages of saved programs with the interface that protobuf's generated modules have.

    program = framework_pb2.ProgramDesc()
    program.ParseFromString(Path("__model__").read_bytes())
    for op in program.blocks[0].ops:
        op.type = "relu" if op.type == "relu6" else op.type
    Path("__model__").write_bytes(program.SerializeToString())

`compiler.ir.model_format.protobuf` reads and writes them: protobuf is not needed.
"""

from __future__ import annotations

from fluid.compat.proto.messages import EnumType, ProtoMessage

__all__ = [
    "BLOCK", "BLOCKS", "BOOLEAN", "BOOLEANS", "FLOAT", "FLOATS", "INT", "INTS", "LONG", "LONGS",
    "STRING", "STRINGS",
    "AttrType", "BlockDesc", "CompatibleInfo", "OpCompatibleMap", "OpDesc", "OpProto",
    "ProgramDesc",
    "VarDesc", "VarType", "Version",
]  # fmt: skip

AttrType = EnumType("AttrType")
INT, FLOAT, STRING, INTS, FLOATS, STRINGS = range(6)
BOOLEAN, BOOLEANS, BLOCK, LONG, BLOCKS, LONGS = range(6, 12)


class Version(ProtoMessage):
    """The release that wrote a program."""


class ProgramDesc(ProtoMessage):
    """A program: its blocks and the release that wrote it."""


class BlockDesc(ProtoMessage):
    """A block: its variables and ops."""


class VarDesc(ProtoMessage):
    """A variable: its name and its type."""


class VarType(ProtoMessage):
    """The type of a variable; `VarType.FP32` and its like are numbers."""

    Type = EnumType("VarType.Type")

    class TensorDesc(ProtoMessage):
        """An element type and sizes."""

    class LoDTensorDesc(ProtoMessage):
        """A tensor and its levels of sequences."""

    class LoDTensorArrayDesc(ProtoMessage):
        """A list of tensors."""

    class ReaderDesc(ProtoMessage):
        """What a reader reads."""

    class Tuple(ProtoMessage):
        """Types of several values."""


class OpDesc(ProtoMessage):
    """An op: its type, slots and attributes."""

    class Var(ProtoMessage):
        """A slot and the names of its variables."""

    class Attr(ProtoMessage):
        """An attribute; `type` selects the field with its value."""


class OpProto(ProtoMessage):
    """The declaration of an op type: its slots and attributes."""

    class Var(ProtoMessage):
        """A slot, and whether it holds a list or may stay empty."""

    class Attr(ProtoMessage):
        """An attribute and how it is written in files."""


class OpCompatibleMap(ProtoMessage):
    """Which releases may run which ops."""

    class OpCompatiblePair(ProtoMessage):
        """An op and the releases that may run it."""


class CompatibleInfo(ProtoMessage):
    """Releases that may run an op."""

    Type = EnumType("CompatibleInfo.Type")
