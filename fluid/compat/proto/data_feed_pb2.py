"""Messages that describe the lines of a data set."""

from __future__ import annotations

from compiler.ir.model_format.schema import declare
from fluid.compat.proto.messages import ProtoMessage

__all__ = [
    "DataFeedDesc", "MultiSlotDesc", "Slot",
]  # fmt: skip

_PACKAGE = "paddle.framework"
declare("""
Slot
    1 required string name
    2 required string type
    3 optional bool is_dense
    4 optional bool is_used
    5 repeated int32 shape
MultiSlotDesc
    1 repeated Slot slots
DataFeedDesc
    1 optional string name
    2 optional int32 batch_size = 32
    3 optional MultiSlotDesc multi_slot_desc
    4 optional string pipe_command
    5 optional int32 thread_num
    6 optional string rank_offset
    7 optional int32 pv_batch_size = 32
""", _PACKAGE)  # fmt: skip


class Slot(ProtoMessage, package=_PACKAGE):
    """A slot of a line."""


class MultiSlotDesc(ProtoMessage, package=_PACKAGE):
    """The slots of a line, in order."""


class DataFeedDesc(ProtoMessage, package=_PACKAGE):
    """The format of the lines of a data set."""
