"""Serialized declarations of op types, as the native module of release 1.8 returns them."""

from __future__ import annotations

from dataclasses import fields

from fluid.compat import op_protos
from fluid.compat.proto import framework_pb2 as pb
from fluid.compat.proto.messages import ProtoMessage

__all__ = ["get_all_op_protos"]


def get_all_op_protos() -> list[bytes]:
    """Return a serialized `framework_pb2.OpProto` for every op type, gradient ops included."""
    return [_message(proto).SerializeToString() for proto in op_protos.get_all_op_protos()]


def _message(proto: op_protos.OpProto) -> pb.OpProto:
    message = pb.OpProto(type=proto.type, comment=proto.comment)
    for slot in ("inputs", "outputs", "attrs"):
        for part in getattr(proto, slot):
            _copy(part, getattr(message, slot).add())
    return message


def _copy(declared: op_protos.OpProto.Var | op_protos.OpProto.Attr, message: ProtoMessage) -> None:
    """Copy fields to a message; flags that are false are omitted."""
    for field in fields(declared):
        value = getattr(declared, field.name)
        if value is not False:
            setattr(message, field.name, value)
