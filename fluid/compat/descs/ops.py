"""`OpDesc`: an op with the methods of the native object that describes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from compiler.errors import CompileError, did_you_mean
from compiler.ir import program as ir
from compiler.ir.model_format.attributes import dump_attr, load_attr
from compiler.ir.model_format.program_desc import program_dumped, program_message
from compiler.ir.model_format.protobuf import AttrType, Message, parse
from compiler.ir.opdef import check_attributes
from compiler.ir.opdef.slots import GRAPH_ONLY
from compiler.ir.opdef.type_inference import bind, check_slots, infer_op
from compiler.ir.program import BlockRef
from fluid.recording.annotations import AttributeValue
from fluid.recording.op_records import plain, plain_values

__all__ = ["OpDesc"]


class Owner(Protocol):
    """The description of the block of an op, a `BlockDesc`."""

    described_block: ir.Block


class OpDesc:
    """Description of an op: its type, the variables in its slots and its attributes.

    `OpDesc()` describes an op of no block. Nothing is checked before `check_attrs`,
    `infer_var_type` or `infer_shape` is called.
    """

    def __init__(self, op: ir.OpDesc | None = None, owner: Owner | None = None) -> None:
        self.described_op = ir.OpDesc("", {}, {}) if op is None else op
        self._owner = owner

    def _touch(self) -> None:
        if self._owner is not None:
            self._owner.described_block.owner.touch()

    def type(self) -> str:
        """The op's type."""
        return self.described_op.type

    def set_type(self, type: str) -> None:
        """Change the type; slots and attributes are kept."""
        self.described_op.type = type
        self._touch()

    def block(self) -> Owner | None:
        """Description of the block that it is in; None where it is in none."""
        return self._owner

    def copy_from(self, other: OpDesc) -> None:
        """Copy type, slots and attributes of another op."""
        self.described_op.type = other.type()
        self.described_op.source = other.described_op.source
        self.described_op.inputs, self.described_op.outputs = other.inputs(), other.outputs()
        self.described_op.attrs = plain_values(other.described_op.attrs)
        self._touch()

    # ---- slots

    def input(self, name: str) -> list[str]:
        """The variables of an input slot; CompileError where there is no such slot."""
        return self._slot(self.described_op.inputs, "input", name)

    def output(self, name: str) -> list[str]:
        """The variables of an output slot; CompileError where there is no such slot."""
        return self._slot(self.described_op.outputs, "output", name)

    def _slot(self, slots: Mapping[str, list[str]], side: str, name: str) -> list[str]:
        if name not in slots:
            names = ", ".join(slots) or "none"
            raise CompileError(f"{self.described_op.type} has no {side} {name!r}; it has: {names}")
        return list(slots[name])

    def inputs(self) -> dict[str, list[str]]:
        """The variables of all input slots by slot."""
        return {slot: list(names) for slot, names in self.described_op.inputs.items()}

    def outputs(self) -> dict[str, list[str]]:
        """The variables of all output slots by slot."""
        return {slot: list(names) for slot, names in self.described_op.outputs.items()}

    def input_names(self) -> list[str]:
        """The input slots."""
        return list(self.described_op.inputs)

    def output_names(self) -> list[str]:
        """The output slots."""
        return list(self.described_op.outputs)

    def input_arg_names(self) -> list[str]:
        """All variables that it reads."""
        return self.described_op.reads()

    def output_arg_names(self) -> list[str]:
        """All variables that it writes."""
        return self.described_op.writes()

    def set_input(self, slot: str, names: Sequence[str]) -> None:
        """Put variables into an input slot."""
        self.described_op.inputs = _with_slot(self.described_op.inputs, slot, names)
        self._touch()

    def set_output(self, slot: str, names: Sequence[str]) -> None:
        """Put variables into an output slot."""
        self.described_op.outputs = _with_slot(self.described_op.outputs, slot, names)
        self._touch()

    def rename_input(self, old_name: str, new_name: str) -> None:
        """Rename a variable in all input slots."""
        self.described_op.inputs = _renamed(self.described_op.inputs, old_name, new_name)
        self._touch()

    def rename_output(self, old_name: str, new_name: str) -> None:
        """Rename a variable in all output slots."""
        self.described_op.outputs = _renamed(self.described_op.outputs, old_name, new_name)
        self._touch()

    # ---- attributes

    def attr_names(self) -> list[str]:
        """The names of the attributes that it has."""
        return list(self.described_op.attrs)

    def has_attr(self, name: str) -> bool:
        """Whether it has an attribute."""
        return name in self.described_op.attrs

    def attr(self, name: str) -> AttributeValue:
        """The value of an attribute; CompileError where it has none of this name."""
        if name not in self.described_op.attrs:
            hint = did_you_mean(name, self.described_op.attrs)
            raise CompileError(f"{self.described_op.type} has no attribute {name!r}", hint=hint)
        return self.described_op.attrs[name]

    def attr_type(self, name: str) -> AttrType:
        """The serialised type of an attribute; CompileError if it has none of this name."""
        return AttrType(dump_attr(self.described_op.type, name, self.attr(name)).one("type", int))

    def set_attr(self, name: str, value: object) -> None:
        """Set an attribute; TypeError for a value that cannot be serialised."""
        value_to_set = plain(_target(value))
        try:
            dump_attr("", name, value_to_set)
        except CompileError as error:
            raise TypeError(str(error)) from None
        self.described_op.attrs[name] = value_to_set
        self._touch()

    _set_attr = set_attr
    _rename_input = rename_input
    _rename_output = rename_output

    def remove_attr(self, name: str) -> None:
        """Remove an attribute, if it is there."""
        self.described_op.attrs.pop(name, None)
        self._touch()

    def set_serialized_attr(self, name: str, value: bytes) -> None:
        """Set an attribute from its `OpDesc.Attr` bytes. Raises ProtoError for other bytes."""
        self.described_op.attrs[name] = load_attr(parse(value, "OpDesc.Attr"))
        self._touch()

    def set_block_attr(self, name: str, block: Owner | ir.Block) -> None:
        """Let an attribute refer to a block."""
        self.set_attr(name, block)

    def set_blocks_attr(self, name: str, blocks: Sequence[Owner | ir.Block]) -> None:
        """Let an attribute refer to several blocks."""
        self.set_attr(name, [_target(block) for block in blocks])

    def _block_attr_id(self, name: str) -> int:
        return int(self._ref(name, self.attr(name)))

    def _blocks_attr_ids(self, name: str) -> list[int]:
        return [int(self._ref(name, block)) for block in self.attr(name)]

    def _ref(self, name: str, value: object) -> BlockRef:
        if not isinstance(value, BlockRef):
            kind = self.described_op.type
            raise CompileError(f"attribute {name!r} of {kind} is {value!r:.60}, not a block")
        return value

    def set_is_target(self, is_target: bool) -> None:
        """Mark the op as a target of pruning."""
        self.described_op.attrs["is_target"] = bool(is_target)
        self._touch()

    # ---- checks

    def check_attrs(self) -> None:
        """Check the attributes and fill in the defaults of those that are not set.

        Raises UnknownOp for a type that is not registered and BadAttribute for a wrong value.
        """
        check_attributes(self.described_op.type, self.described_op.attrs)
        bound = {n: v for n, v in bind(self.described_op).attributes.items() if n not in GRAPH_ONLY}
        self.described_op.attrs = {**plain_values(bound), **self.described_op.attrs}

    def infer_var_type(self, block: Owner | ir.Block) -> None:
        """Infer the variable types of the outputs (tensor, SelectedRows, array), as `infer_shape`
        does.
        """
        self.infer_shape(block)

    def infer_shape(self, block: Owner | ir.Block) -> None:
        """Infer shapes and element types of the outputs from the inputs declared in a block.

        Raises UnknownOp, MissingSlot, BadAttribute or ShapeError.
        """
        check_slots(self.described_op)
        infer_op(block if isinstance(block, ir.Block) else block.described_block, self.described_op)
        self._touch()

    def serialize_to_string(self) -> bytes:
        """The `OpDesc` bytes of a saved program."""
        alone = ir.Program()
        alone.blocks[0].ops.append(self.described_op)
        block = program_message(alone).many("blocks", Message)[0]
        return program_dumped(block.many("ops", Message)[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpDesc) and other.described_op is self.described_op

    def __hash__(self) -> int:
        return hash(id(self.described_op))


def _target(value: object) -> object:
    """The block that a description is of; other values as they are."""
    return getattr(value, "described_block", value)


def _with_slot(
    slots: Mapping[str, list[str]], slot: str, names: Sequence[str]
) -> dict[str, list[str]]:
    """Slots in alphabetical order, one of them with other variables."""
    are_names = all(isinstance(name, str) for name in names)  # pyright: ignore[reportUnnecessaryIsInstance] - users pass bytes
    if isinstance(names, str) or not are_names:
        raise TypeError(f"slot {slot!r} takes a list of names, but received {names!r:.60}")
    updated = {**slots, slot: list(names)}
    return {slot_name: updated[slot_name] for slot_name in sorted(updated)}


def _renamed(slots: Mapping[str, list[str]], old: str, new: str) -> dict[str, list[str]]:
    return {s: [new if name == old else name for name in names] for s, names in slots.items()}
