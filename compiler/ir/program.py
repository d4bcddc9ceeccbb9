"""Program: blocks of ops in the order the user wrote them; a name may be written twice.

This is what `fluid` records and what saved models hold. It is plain data with a version counter:
every edit bumps `Program.version`, so that a compiled form is found again without comparing ops.
`fluid.framework` adds the sugar users see by deriving from these classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntFlag, StrEnum
from typing import Any

from compiler.ir.types import DType

MAIN_BLOCK = 0
NO_BLOCK = -1
EMPTY = "@EMPTY@"
"""The name that stands for "no variable" in a slot."""
GRAD = "@GRAD"
"""The suffix that turns a variable's name into its gradient's."""


class OpRole(IntFlag):
    """What an op is for (fluid_spec A.3): passes and `clone(for_test=True)` go by it."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZE = 2
    RPC = 4
    DIST = 8
    LRSCHED = 16
    LOSS = 256


class VarKind(StrEnum):
    """What a variable holds; the names of `VarType.Type`."""

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
    """The index of a block, as an op's attribute (`sub_block`)."""


class VarDesc:
    """A variable of a block: name, type, and what the executor must know of it.

    `shape` uses -1 for unknown sizes and is None where it is not known at all.
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
        """True for what has a shape and elements."""
        return self.kind in (VarKind.TENSOR, VarKind.SELECTED_ROWS)


class OpDesc:
    """An op of a block: its type, the names in its slots, its attributes, the user's line.

    Slots keep alphabetical order, as the reference shows them.
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
        """The `op_role` attribute; forward where it is not given."""
        return OpRole(int(self.attrs.get("op_role", 0)))

    def reads(self) -> list[str]:
        """Every name it reads, slot by slot."""
        return [n for names in self.inputs.values() for n in names if n != EMPTY]

    def writes(self) -> list[str]:
        """Every name it writes, slot by slot."""
        return [n for names in self.outputs.values() for n in names if n != EMPTY]


class Block:
    """Variables by name and ops in order; names not found here are looked up in the parent."""

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
        """How many blocks lie inside each other here, the main block and this one included."""
        depth, block = 1, self
        while block.parent_idx != NO_BLOCK:
            depth, block = depth + 1, block.owner.blocks[block.parent_idx]
        return depth

    def lookup(self, name: str) -> VarDesc | None:
        """The variable of this name here or in an enclosing block; None where there is none."""
        block: Block | None = self
        while block is not None:
            if name in block.vars:
                return block.vars[name]
            block = block.parent
        return None

    def add_var(self, name: str, **fields: Any) -> VarDesc:
        """Declare a variable; fields as for `VarDesc`. A name declared before is replaced."""
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
        """Append an op, or insert it before position `index`."""
        op = OpDesc(type, inputs, outputs, attrs, source)
        self.ops.insert(len(self.ops) if index is None else index, op)
        self.owner.touch()
        return op

    def remove_op(self, index: int) -> None:
        """Take out the op at a position."""
        del self.ops[index]
        self.owner.touch()


class Program:
    """Blocks; block 0 is the main one. `version` grows with every edit."""

    def __init__(self) -> None:
        self.version = 0
        self.known_digest: tuple[int, str] | None = None
        """A version and its digest, kept by `compiler.ir.text.program_printer.program_digest`."""
        self.blocks: list[Block] = [self.make_block(MAIN_BLOCK, NO_BLOCK)]

    def make_block(self, idx: int, parent_idx: int) -> Block:
        """The block object for an index; derived programs make their own kind."""
        return Block(self, idx, parent_idx)

    def add_block(self, parent_idx: int) -> Block:
        """Append an empty block inside another one."""
        block = self.make_block(len(self.blocks), parent_idx)
        self.blocks.append(block)
        self.touch()
        return block

    def touch(self) -> None:
        """Say that something was edited, so that compiled forms are not used for it."""
        self.version += 1

    def all_vars(self) -> Iterator[VarDesc]:
        """Every variable of every block, in order of declaration."""
        for block in self.blocks:
            yield from block.vars.values()
