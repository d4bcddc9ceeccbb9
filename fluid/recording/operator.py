"""An op of a block, with the methods that program rewrites use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.errors import did_you_mean
from compiler.ir import program as ir
from compiler.ir.model_format.attributes import dump_attr
from compiler.ir.model_format.protobuf import AttrType
from compiler.ir.opdef.type_inference import op_text as short_text
from compiler.ir.program import BlockRef, OpRole
from fluid.compat.descs import BlockDesc, OpDesc
from fluid.compat.library_attributes import library_attributes
from fluid.recording.annotations import Attributes, AttributeValue
from fluid.recording.narrowing import is_sequence
from fluid.recording.op_records import must_be_bool, plain, plain_values
from fluid.recording.proto_text import op_text

__all__ = ["Operator"]


class Operator(ir.OpDesc):
    """An op of a block, created by `Block.append_op`. Slots are in alphabetical order.

    `recorded` is True for an op appended by a script of this process, False for one that was
    decoded or inserted by fluid in place of another; copies keep the value.
    """

    def __init__(
        self,
        block: ir.Block,
        type: str,
        inputs: Mapping[str, Sequence[str]],
        outputs: Mapping[str, Sequence[str]],
        attrs: Attributes | None = None,
        source: str = "",
    ) -> None:
        super().__init__(type, inputs, outputs, attrs, source)
        self.block = block
        self.recorded = False

    @property
    def desc(self) -> OpDesc:
        """The op with the methods of a native `OpDesc`."""
        return OpDesc(self, BlockDesc(self.block))

    @property
    def idx(self) -> int:
        """Its position in its block; ValueError once it was removed."""
        for index, op in enumerate(self.block.ops):
            if op is self:
                return index
        raise ValueError(f"{self.type} is no longer in its block")

    @property
    def input_names(self) -> list[str]:
        """Its input slots, also the empty ones."""
        return list(self.inputs)

    @property
    def output_names(self) -> list[str]:
        """Its output slots."""
        return list(self.outputs)

    @property
    def input_arg_names(self) -> list[str]:
        """The names of all variables it reads."""
        return self.reads()

    @property
    def output_arg_names(self) -> list[str]:
        """The names of all variables it writes."""
        return self.writes()

    @property
    def attr_names(self) -> list[str]:
        """The names of its attributes, and of those for kernels of other libraries."""
        return list({**library_attributes(self.type), **self.attrs})

    def input(self, name: str) -> list[str]:
        """The names in an input slot; ValueError where it has no such slot."""
        return self._slot(self.inputs, "input", name)

    def output(self, name: str) -> list[str]:
        """The names in an output slot; ValueError where it has no such slot."""
        return self._slot(self.outputs, "output", name)

    def _slot(self, slots: Mapping[str, list[str]], side: str, name: str) -> list[str]:
        if name not in slots:
            raise ValueError(f"{self.type} has no {side} {name!r}; it has: {', '.join(slots)}")
        return list(slots[name])

    def attr(self, name: str) -> AttributeValue:
        """The value of an attribute; ValueError where it has none of this name."""
        if name in self.attrs:
            return self.attrs[name]
        if name in (unset := library_attributes(self.type)):
            return unset[name]
        hint = did_you_mean(name, self.attrs)
        raise ValueError(f"{self.type} has no attribute {name!r}; {hint}".rstrip("; "))

    def has_attr(self, name: str) -> bool:
        """True where it has an attribute of this name."""
        return name in self.attrs or name in library_attributes(self.type)

    def attr_type(self, name: str) -> AttrType:
        """The serialised type of an attribute; ValueError if it has none of this name."""
        return AttrType(dump_attr(self.type, name, self.attr(name)).one("type", int))

    def all_attrs(self) -> dict[str, AttributeValue]:
        """Its attributes by name; those that refer to blocks have the blocks themselves."""
        attrs = {**library_attributes(self.type), **self.attrs}
        return {name: self._with_blocks(value) for name, value in attrs.items()}

    def _with_blocks(self, value: object) -> object:
        if is_sequence(value) and isinstance(value, list):
            return [self._with_blocks(item) for item in value]
        return self.block.owner.blocks[value] if isinstance(value, BlockRef) else value

    def set_attr(self, name: str, val: object) -> None:
        """Set an attribute, without a check."""
        self.attrs[name] = plain(val)
        self.block.owner.touch()

    def remove_attr(self, name: str) -> None:
        """Remove an attribute, if there is one."""
        self.attrs.pop(name, None)
        self.block.owner.touch()

    def block_attr_id(self, name: str) -> int:
        """The index of the block that an attribute refers to."""
        return int(self.attr(name))

    def block_attr(self, name: str) -> ir.Block:
        """The block that an attribute refers to."""
        return self.block.owner.blocks[self.block_attr_id(name)]

    def blocks_attr_ids(self, name: str) -> list[int]:
        """The indices of the blocks that an attribute refers to."""
        return [int(ref) for ref in self.attr(name)]

    def blocks_attr(self, name: str) -> list[ir.Block]:
        """The blocks that an attribute refers to."""
        return [self.block.owner.blocks[ref] for ref in self.blocks_attr_ids(name)]

    def rename_input(self, old_name: str, new_name: str) -> None:
        """Rename a variable in all input slots."""
        _rename(self.inputs, old_name, new_name)
        self.block.owner.touch()

    def rename_output(self, old_name: str, new_name: str) -> None:
        """Rename a variable in all output slots."""
        _rename(self.outputs, old_name, new_name)
        self.block.owner.touch()

    def copied_to(self, block: ir.Block) -> Operator:
        """The same op in a copy of its block."""
        attrs = plain_values(self.attrs)
        copied = Operator(block, self.type, self.inputs, self.outputs, attrs, self.source)
        copied.recorded = self.recorded
        return copied

    def is_optimize_op(self) -> bool:
        """True for an op that updates a parameter."""
        return bool(self.role & OpRole.OPTIMIZE)

    # ---- the names that scripts use

    _set_attr = set_attr
    _update_desc_attr = set_attr
    _remove_attr = remove_attr
    _block_attr = block_attr
    _block_attr_id = block_attr_id
    _blocks_attr = blocks_attr
    _blocks_attr_ids = blocks_attr_ids
    _rename_input = rename_input
    _rename_output = rename_output
    _is_optimize_op = is_optimize_op

    def to_string(self, throw_on_error: bool) -> str:
        """The op as protobuf text; AssertionError where the argument is no bool."""
        must_be_bool(throw_on_error=throw_on_error)
        return op_text(self)

    def __str__(self) -> str:
        return self.to_string(True)

    def __repr__(self) -> str:
        return f"<Operator {short_text(self)}>"


def _rename(slots: dict[str, list[str]], old_name: str, new_name: str) -> None:
    for slot, names in slots.items():
        slots[slot] = [new_name if name == old_name else name for name in names]
