"""Declarations of ops as scripts read them: `framework.OpProtoHolder`, `op.get_all_op_protos`.

A declaration has the type, the input and output slots and the attributes of an op, as the native
library of release 1.8 describes them in protobuf messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from compiler.ir.opdef import find, registered
from compiler.ir.slots import BOOKKEEPING, Slot

__all__ = ["OpProto", "OpProtoAttr", "OpProtoHolder", "OpProtoSlot", "get_all_op_protos"]


@dataclass(frozen=True)
class OpProtoSlot:
    """A slot of an op: it takes a list where `duplicable`, and may be empty where `dispensable`."""

    name: str
    duplicable: bool
    dispensable: bool


@dataclass(frozen=True)
class OpProtoAttr:
    """An attribute of an op; `generated` ones are of every op."""

    name: str
    generated: bool


@dataclass(frozen=True)
class OpProto:
    """The declaration of an op."""

    type: str
    inputs: tuple[OpProtoSlot, ...]
    outputs: tuple[OpProtoSlot, ...]
    attrs: tuple[OpProtoAttr, ...]


class OpProtoHolder:
    """The declarations of all ops (fluid 1.8.5 `OpProtoHolder`)."""

    @classmethod
    @cache
    def instance(cls) -> OpProtoHolder:
        """The only one."""
        return cls()

    def has_op_proto(self, type: str) -> bool:
        """Whether there is an op of this type."""
        return type in registered()

    def get_op_proto(self, type: str) -> OpProto:
        """The declaration of an op; ValueError for an unknown type."""
        if not self.has_op_proto(type):
            raise ValueError(f'Operator "{type}" has not been registered.')
        return _proto(type)

    @staticmethod
    def generated_op_attr_names() -> set[str]:
        """The attributes that every op has."""
        return {name for name in BOOKKEEPING if name.startswith("op_")} - {"op_reuses"}


def get_all_op_protos() -> list[OpProto]:
    """The declarations of all ops, by their types in alphabetical order."""
    return [_proto(kind) for kind in registered()]


@cache
def _proto(kind: str) -> OpProto:
    definition: Any = find(kind)
    generated = OpProtoHolder.generated_op_attr_names()
    attrs = [OpProtoAttr(name, name in generated) for name in definition.attrs]
    return OpProto(kind, _slots(definition.inputs()), _slots(definition.outputs()), tuple(attrs))


def _slots(slots: Mapping[str, Slot]) -> tuple[OpProtoSlot, ...]:
    """Slots that programs mention, which companions are not."""
    named = (slot for slot in slots.values() if not slot.companion)
    return tuple(OpProtoSlot(slot.name, slot.many, slot.optional) for slot in named)
