"""What is declared of every op type, with the names of the reference's `OpProto` messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from compiler.errors import UnknownOp
from compiler.ir.opdef import OpDef, find, is_registered, registered
from compiler.ir.proto import AttrType
from compiler.ir.serial_attrs import dump_attr
from compiler.ir.slots import GRAPH_ONLY, Attr, Slot

__all__ = ["OpProto", "OpProtoHolder", "get_all_op_protos"]

_EVERY_OP = {
    "op_role": AttrType.INT,
    "op_role_var": AttrType.STRINGS,
    "op_namescope": AttrType.STRING,
    "op_callstack": AttrType.STRINGS,
    "op_device": AttrType.STRING,
}
"""Attributes that a program adds to each op, and how they are written in files."""
_BY_KIND = {
    bool: AttrType.BOOLEAN, int: AttrType.INT, float: AttrType.FLOAT, str: AttrType.STRING,
}  # fmt: skip
_LISTS = {
    bool: AttrType.BOOLEANS, int: AttrType.INTS, float: AttrType.FLOATS, str: AttrType.STRINGS,
}  # fmt: skip


@dataclass(frozen=True)
class OpProto:
    """An op type: its input and output slots and its attributes, in order of declaration."""

    @dataclass(frozen=True)
    class Var:
        """A slot; `duplicable` ones hold a list, `dispensable` ones may stay empty."""

        name: str
        comment: str = ""
        duplicable: bool = False
        intermediate: bool = False
        dispensable: bool = False

    @dataclass(frozen=True)
    class Attr:
        """An attribute and how it is written in files."""

        name: str
        type: int
        comment: str = ""
        generated: bool = False

    type: str
    inputs: list[Var] = field(default_factory=list)
    outputs: list[Var] = field(default_factory=list)
    attrs: list[Attr] = field(default_factory=list)
    comment: str = ""


@cache
def _proto(kind: str) -> OpProto:
    defn = find(kind)
    attrs = [
        OpProto.Attr(name, int(_written(kind, name, attr)))
        for name, attr in defn.attrs.items()
        if name not in GRAPH_ONLY
    ]
    attrs += [OpProto.Attr(name, int(type)) for name, type in _EVERY_OP.items()]
    read, written = _vars(defn.inputs()), _vars(defn.outputs())
    return OpProto(kind, read, written, attrs, _comment(defn))


def _vars(slots: dict[str, Slot]) -> list[OpProto.Var]:
    said = [slot for slot in slots.values() if not slot.companion]
    return [OpProto.Var(s.name, "", s.many, False, s.optional) for s in said]


def _comment(defn: type[OpDef]) -> str:
    """The first line of the class's docstring."""
    return (vars(defn).get("__doc__") or "").partition("\n")[0]


def _written(kind: str, name: str, attr: Attr[Any]) -> AttrType:
    """How an attribute is written: as its default is, or where there is none, as its kind."""
    if attr.default is not None:
        return AttrType(dump_attr(kind, name, attr.default).one("type", int))
    table = _LISTS if attr.kind is list else _BY_KIND
    return table.get(attr.item or int if attr.kind is list else attr.kind, AttrType.BLOCK)


def get_all_op_protos() -> list[OpProto]:
    """What is declared of every op type, gradient ops included, in alphabetical order."""
    return [_proto(kind) for kind in registered()]


class OpProtoHolder:
    """What is declared of op types, by type; `OpProtoHolder.instance()` is the only one needed."""

    @classmethod
    def instance(cls) -> OpProtoHolder:
        """The one of this process."""
        return _holder()

    @property
    def op_proto_map(self) -> dict[str, OpProto]:
        """What is declared of every op type, by type."""
        return {proto.type: proto for proto in get_all_op_protos()}

    def has_op_proto(self, type: str) -> bool:
        """Whether there is an op of this type."""
        return is_registered(type)

    def get_op_proto(self, type: str) -> OpProto:
        """What is declared of an op type; ValueError where it is not registered."""
        try:
            return _proto(type)
        except UnknownOp as error:
            raise ValueError(str(error)) from None

    def update_op_proto(self) -> None:
        """Nothing is to be done: ops registered since are found when asked for."""

    @staticmethod
    def generated_op_attr_names() -> set[str]:
        """The attributes that a program adds to each op."""
        return set(_EVERY_OP)


@cache
def _holder() -> OpProtoHolder:
    return OpProtoHolder()
