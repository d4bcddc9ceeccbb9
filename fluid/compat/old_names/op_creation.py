"""Functions that make `OpDesc` messages from the declaration of an op type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from compiler.support.dataclass import dataclass
from fluid.compat.op_protos import OpProto
from fluid.compat.proto import framework_pb2

__all__ = ["OpDescCreationMethod", "OpInfo", "create_op_creation_method", "is_str"]

_FIELDS = {
    framework_pb2.INT: "i",
    framework_pb2.FLOAT: "f",
    framework_pb2.STRING: "s",
    framework_pb2.BOOLEAN: "b",
    framework_pb2.INTS: "ints",
    framework_pb2.FLOATS: "floats",
    framework_pb2.STRINGS: "strings",
    framework_pb2.BOOLEANS: "bools",
}


def is_str(s: object) -> bool:
    """Whether a value is text."""
    return isinstance(s, str)


class OpDescCreationMethod:
    """Makes an `OpDesc` from keywords: a name or names for each slot, values of attributes.

    Raises TypeError for a declaration that is no `OpProto`.
    """

    def __init__(self, op_proto: OpProto | framework_pb2.OpProto) -> None:
        if not hasattr(op_proto, "attrs"):
            raise TypeError(f"an OpProto is needed, not {type(op_proto).__name__}")
        self._proto = op_proto

    def __call__(self, *args: object, **kwargs: object) -> framework_pb2.OpDesc:
        """Return the message.

        Raises ValueError for positional arguments, for several names in a slot that takes one, and
        for an attribute that is not a number, text or list of them.
        """
        if args:
            raise ValueError("Only keyword arguments are supported.")
        proto, message = self._proto, framework_pb2.OpDesc()
        message.type = proto.type
        for slots, filled in ((proto.inputs, message.inputs), (proto.outputs, message.outputs)):
            for slot in slots:
                names = _names(kwargs.pop(slot.name, []), slot)
                added = filled.add()
                added.parameter = slot.name
                added.arguments.extend(names)
        for attr in proto.attrs:
            if not attr.generated and (value := kwargs.get(attr.name)) is not None:
                _set_attribute(message.attrs.add(), attr, value)
        return message


def _names(value: object, slot: OpProto.Var | framework_pb2.OpProto.Var) -> list[str]:
    names = [value] if isinstance(value, str) else list(cast(Sequence[str], value))
    if len(names) > 1 and not slot.duplicable:
        raise ValueError(f"Input {slot.name} is not duplicable, but {len(names)} names were given")
    return names


def _set_attribute(
    message: framework_pb2.OpDesc.Attr,
    attr: OpProto.Attr | framework_pb2.OpProto.Attr,
    value: object,
) -> None:
    message.name, message.type = attr.name, attr.type
    if attr.type not in _FIELDS:
        raise NotImplementedError(f"an attribute of type {attr.type} cannot be set by a keyword")
    field = _FIELDS[attr.type]
    if isinstance(value, list | tuple):
        getattr(message, field).extend(value)
    else:
        setattr(message, field, value)


@dataclass(frozen=True)
class OpInfo:
    """An op type: its name, how it is made, and the names of its slots and attributes.

    `inputs` and `outputs` are pairs of a slot and whether it takes several variables.
    """

    name: str
    method: Callable[..., framework_pb2.OpDesc]
    inputs: list[tuple[str, bool]]
    outputs: list[tuple[str, bool]]
    attrs: list[str]


def create_op_creation_method(op_proto: OpProto | framework_pb2.OpProto) -> OpInfo:
    """Describe an op type by its declaration."""
    return OpInfo(
        op_proto.type,
        OpDescCreationMethod(op_proto),
        [(slot.name, slot.duplicable) for slot in op_proto.inputs],
        [(slot.name, slot.duplicable) for slot in op_proto.outputs],
        [attr.name for attr in op_proto.attrs],
    )
