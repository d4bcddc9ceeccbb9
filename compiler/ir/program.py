"""Program: blocks of ops in the order the user wrote them; a name may be written twice.

This is what `fluid` records and what saved models hold: plain data with a version counter. Every
edit increments `Program.version`, so that the compilation cache need not compare ops.
`fluid.framework` derives the user-visible classes from these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntFlag, StrEnum
from typing import Any

from compiler.ir.types import DType

MAIN_BLOCK = 0
NO_BLOCK = -1
EMPTY = "@EMPTY@"
"""The name of an absent variable in a slot."""
GRAD = "@GRAD"
"""The suffix of gradient names."""


class OpRole(IntFlag):
    """The role of an op as bit flags, those of `op_proto_maker.h`; read by passes and `clone`."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZE = 2
    RPC = 4
    DIST = 8
    LRSCHED = 16
    LOSS = 256


_BACKWARD = int(OpRole.BACKWARD)


class VarKind(StrEnum):
    """The kind of a variable; the names of `VarType.Type`."""

    TENSOR = "LOD_TENSOR"
    SELECTED_ROWS = "SELECTED_ROWS"
    FEED = "FEED_MINIBATCH"
    FETCH = "FETCH_LIST"
    STEP_SCOPES = "STEP_SCOPES"
    RANK_TABLE = "LOD_RANK_TABLE"
    TENSOR_ARRAY = "LOD_TENSOR_ARRAY"
    READER = "READER"
    RAW = "RAW"


class BlockRef(int):
    """A block index as the value of an op attribute (`sub_block`)."""


class VarDesc:
    """A variable of a block: its name, its type, and flags for the executor.

    `shape` uses -1 for unknown sizes and is None if it is not known at all.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int] | None = None,
        dtype: DType = DType.FP32,
        kind: VarKind = VarKind.TENSOR,
        lod_level: int = 0,
        persistable: bool = False,
        stop_gradient: bool = False,
        need_check_feed: bool = False,
        is_parameter: bool = False,
    ) -> None:
        self.name = name
        self.dims = None if shape is None else tuple(int(size) for size in shape)
        self.element = dtype
        self.kind = kind
        self.lod_level = lod_level
        self.persistable = persistable
        self.stop_gradient = stop_gradient
        self.need_check_feed = need_check_feed
        self.is_parameter = is_parameter

    @property
    def holds_tensor(self) -> bool:
        """True for kinds with a shape and elements."""
        return self.kind in (VarKind.TENSOR, VarKind.SELECTED_ROWS)


class OpDesc:
    """An op of a block: its type, the names in its slots, its attributes, the user's line.

    Slots are in alphabetical order, as the reference prints them.
    """

    def __init__(
        self,
        type: str,
        inputs: Mapping[str, Sequence[str]],
        outputs: Mapping[str, Sequence[str]],
        attrs: Mapping[str, Any] | None = None,
        source: str = "",
    ) -> None:
        self.type = type
        self.inputs = {slot: list(inputs[slot]) for slot in sorted(inputs)}
        self.outputs = {slot: list(outputs[slot]) for slot in sorted(outputs)}
        self.attrs: dict[str, Any] = dict(attrs or {})
        self.source = source

    @property
    def role(self) -> OpRole:
        """The `op_role` attribute; forward by default."""
        return OpRole(int(self.attrs.get("op_role", 0)))

    @property
    def is_backward(self) -> bool:
        """Whether backward is among its roles: `role` makes an object, which takes longer."""
        return bool(int(self.attrs.get("op_role", 0)) & _BACKWARD)

    def reads(self) -> list[str]:
        """List every name it reads, slot by slot."""
        return [n for names in self.inputs.values() for n in names if n != EMPTY]

    def writes(self) -> list[str]:
        """List every name it writes, slot by slot."""
        return [n for names in self.outputs.values() for n in names if n != EMPTY]


class Block:
    """Variables by name and ops in order; names missing here are looked up in the parent block."""

    def __init__(self, program: Program, idx: int, parent_idx: int = NO_BLOCK) -> None:
        self.owner = program
        self.idx = idx
        self.parent_idx = parent_idx
        self.forward_block_idx = NO_BLOCK
        self.vars: dict[str, VarDesc] = {}
        self.ops: list[OpDesc] = []

    @property
    def parent(self) -> Block | None:
        """The enclosing block; None for the main block."""
        return None if self.parent_idx == NO_BLOCK else self.owner.blocks[self.parent_idx]

    @property
    def depth(self) -> int:
        """The nesting depth of the block; 1 for the main block."""
        depth, block = 1, self
        while block.parent_idx != NO_BLOCK:
            depth, block = depth + 1, block.owner.blocks[block.parent_idx]
        return depth

    def lookup(self, name: str) -> VarDesc | None:
        """Return the variable of this name in this or an enclosing block, or None."""
        block: Block | None = self
        while block is not None:
            if name in block.vars:
                return block.vars[name]
            block = block.parent
        return None

    def add_var(self, name: str, **fields: Any) -> VarDesc:
        """Declare a variable with the fields of `VarDesc`; replaces an earlier declaration."""
        self.vars[name] = var = VarDesc(name, **fields)
        self.owner.touch()
        return var

    def add_op(
        self,
        type: str,
        inputs: Mapping[str, Sequence[str]],
        outputs: Mapping[str, Sequence[str]],
        attrs: Mapping[str, Any] | None = None,
        source: str = "",
        index: int | None = None,
    ) -> OpDesc:
        """Append an op, or insert it at `index`."""
        op = OpDesc(type, inputs, outputs, attrs, source)
        self.ops.insert(len(self.ops) if index is None else index, op)
        self.owner.touch()
        return op

    def remove_op(self, index: int) -> None:
        """Remove the op at an index."""
        del self.ops[index]
        self.owner.touch()


class Program:
    """A list of blocks; block 0 is the main one. `version` increases with every edit."""

    def __init__(self) -> None:
        self.version = 0
        self.known_digests: dict[str, tuple[int, str]] = {}
        """A version and its digest, by kind, cached by `compiler.ir.text.program_printer`."""
        self.gradient_passes = 0
        """How often gradients of the main block were appended."""
        self.blocks: list[Block] = [self.make_block(MAIN_BLOCK, NO_BLOCK)]

    def make_block(self, idx: int, parent_idx: int) -> Block:
        """Create the block object for an index; subclasses return their own block class."""
        return Block(self, idx, parent_idx)

    def add_block(self, parent_idx: int) -> Block:
        """Append an empty block with the given parent."""
        block = self.make_block(len(self.blocks), parent_idx)
        self.blocks.append(block)
        self.touch()
        return block

    def touch(self) -> None:
        """Record an edit, which invalidates compiled programs."""
        self.version += 1

    def all_vars(self) -> Iterator[VarDesc]:
        """Iterate over the variables of every block, in order of declaration."""
        for block in self.blocks:
            yield from block.vars.values()
