"""`ProgramDesc` and `BlockDesc`: programs and blocks with the methods of the native objects."""

from __future__ import annotations

from dataclasses import replace

from compiler.ir import program as ir
from compiler.ir.model_format.program_desc import (
    MODEL_VERSION,
    load_program,
    program_dumped,
    program_message,
)
from compiler.ir.model_format.protobuf import Message, build
from fluid.compat.descs.ops import OpDesc
from fluid.compat.descs.variables import VarDesc
from fluid.recording.program_bytes import flagged_message

__all__ = ["BlockDesc", "ProgramDesc"]


class BlockDesc:
    """Description of a block: variables by name, given as bytes, and ops by index."""

    def __init__(self, block: ir.Block) -> None:
        self.described_block = block

    @property
    def id(self) -> int:
        """Index of the block in its program."""
        return self.described_block.idx

    @property
    def parent(self) -> int:
        """Index of the enclosing block; -1 for the main block."""
        return self.described_block.parent_idx

    def get_forward_block_idx(self) -> int:
        """Index of the block whose gradients this one computes; -1 where there is none."""
        return self.described_block.forward_block_idx

    def _set_forward_block_idx(self, idx: int) -> None:
        self.described_block.forward_block_idx = idx
        self.described_block.owner.touch()

    # ---- variables

    def var(self, name: bytes) -> VarDesc:
        """The variable of a name, declared where the block has none."""
        variables = self.described_block.vars
        variable = variables.get(_text(name)) or self.described_block.add_var(_text(name))
        return VarDesc(variable, self.described_block)

    def find_var(self, name: bytes) -> VarDesc | None:
        """The variable of a name in this block, or None."""
        variable = self.described_block.vars.get(_text(name))
        return None if variable is None else VarDesc(variable, self.described_block)

    def find_var_recursive(self, name: bytes) -> VarDesc | None:
        """The variable of a name in this block or an enclosing one, or None."""
        block: ir.Block | None = self.described_block
        while block is not None and _text(name) not in block.vars:
            block = block.parent
        return None if block is None else VarDesc(block.vars[_text(name)], block)

    def has_var(self, name: bytes) -> bool:
        """Whether this block has a variable of a name."""
        return self.find_var(name) is not None

    def has_var_recursive(self, name: bytes) -> bool:
        """Whether this block or an enclosing one has a variable of a name."""
        return self.find_var_recursive(name) is not None

    def all_vars(self) -> list[VarDesc]:
        """All variables of this block."""
        return [VarDesc(var, self.described_block) for var in self.described_block.vars.values()]

    def remove_var(self, name: bytes) -> None:
        """Remove a variable, if it is there."""
        self.described_block.vars.pop(_text(name), None)
        self.described_block.owner.touch()

    def rename_var(self, old_name: bytes, new_name: bytes) -> None:
        """Rename a variable here and in the ops of the block."""
        variable = self.find_var(old_name)
        if variable is None:
            return
        variable.set_name(_text(new_name))
        for op in [self.op(index) for index in range(self.op_size())]:
            op.rename_input(_text(old_name), _text(new_name))
            op.rename_output(_text(old_name), _text(new_name))

    # ---- ops

    def op_size(self) -> int:
        """The number of ops."""
        return len(self.described_block.ops)

    def op(self, index: int) -> OpDesc:
        """The op at an index; IndexError beyond the last."""
        if not 0 <= index < self.op_size():
            raise IndexError(f"op {index} of a block of {self.op_size()} ops")
        return OpDesc(self.described_block.ops[index], self)

    def append_op(self) -> OpDesc:
        """Append an op without type, slots and attributes."""
        return self.insert_op(self.op_size())

    def prepend_op(self) -> OpDesc:
        """Insert an op without type, slots and attributes before all others."""
        return self.insert_op(0)

    def insert_op(self, index: int) -> OpDesc:
        """Insert an op without type, slots and attributes before position `index`."""
        return OpDesc(self.described_block.add_op("", {}, {}, index=index), self)

    def remove_op(self, start: int, end: int) -> None:
        """Remove the ops from position `start` to `end`."""
        del self.described_block.ops[start:end]
        self.described_block.owner.touch()

    # ---- the names that scripts use

    _remove_var = remove_var
    _rename_var = rename_var
    _prepend_op = prepend_op
    _insert_op = insert_op
    _remove_op = remove_op

    def serialize_to_string(self) -> bytes:
        """The `BlockDesc` bytes of a saved program."""
        block = self.described_block
        message = program_message(block.owner).many("blocks", Message)[block.idx]
        return program_dumped(message)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockDesc) and other.described_block is self.described_block

    def __hash__(self) -> int:
        return hash(id(self.described_block))


class ProgramDesc:
    """Description of a program: its blocks.

    `ProgramDesc()` has one empty block; `ProgramDesc(other)` is a copy; `ProgramDesc(data)` is the
    program of a `__model__` file.
    """

    def __init__(self, of: ir.Program | ProgramDesc | bytes | None = None) -> None:
        if isinstance(of, ProgramDesc):
            of = of.serialize_to_string()
        if isinstance(of, bytes):
            of = load_program(of, "the bytes given")
        self.described_program = ir.Program() if of is None else of
        self.saved_version = MODEL_VERSION

    def num_blocks(self) -> int:
        """The number of blocks."""
        return len(self.described_program.blocks)

    def block(self, index: int) -> BlockDesc:
        """The block of an index; IndexError where there is none."""
        if not 0 <= index < self.num_blocks():
            raise IndexError(f"block {index} of a program of {self.num_blocks()} blocks")
        return BlockDesc(self.described_program.blocks[index])

    def append_block(self, parent: BlockDesc) -> BlockDesc:
        """Append an empty block inside another one."""
        return BlockDesc(self.described_program.add_block(parent.id))

    def get_feed_target_names(self) -> list[str]:
        """What feed ops write, in the order of their columns."""
        return [name for op in self._ops("feed") for name in op.writes()]

    def get_fetch_target_names(self) -> list[str]:
        """What fetch ops read, in the order of their columns."""
        return [name for op in self._ops("fetch") for name in op.reads()]

    def _ops(self, kind: str) -> list[ir.OpDesc]:
        ops = [op for op in self.described_program.blocks[0].ops if op.type == kind]
        return sorted(ops, key=lambda op: int(op.attrs.get("col", 0)))

    def _version(self) -> int:
        return self.saved_version

    def _set_version(self, version: int = MODEL_VERSION) -> None:
        self.saved_version = version

    def flush(self) -> None:
        """Nothing is to be done: a description holds nothing of its own."""

    def serialize_to_string(self) -> bytes:
        """The program as bytes that release 1.8.5 reads, without call stacks."""
        message = flagged_message(self.described_program)
        version = build("Version", version=self.saved_version)
        return program_dumped(replace(message, values={**message.values, "version": version}))

    def parse_from_string(self, data: bytes) -> None:
        """Replace all blocks by those of a `__model__` file; CompileError for other bytes."""
        kind = type(self.described_program)
        self.described_program.blocks = load_program(data, "the bytes given", factory=kind).blocks
        for block in self.described_program.blocks:
            block.owner = self.described_program
        self.described_program.touch()

    def __eq__(self, other: object) -> bool:
        mine = self.described_program
        return isinstance(other, ProgramDesc) and other.described_program is mine

    def __hash__(self) -> int:
        return hash(id(self.described_program))


def _text(name: bytes) -> str:
    """The name of a variable; TypeError where it is not given as bytes, as the reference has it."""
    if not isinstance(name, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass str
        raise TypeError(f"names of variables are bytes here, but received {name!r:.60}")
    return name.decode()
