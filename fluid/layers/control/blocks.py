"""Nested blocks: guards that control flow layers use in `with` statements."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Unpack

from fluid.framework import Block, Operator, Program, Variable
from fluid.layer_helper import LayerHelper
from fluid.recording.checks import check_type, check_variable
from fluid.recording.var_types import VarDesc
from fluid.recording.variable import VariableFields

__all__ = [
    "BlockGuard",
    "ConditionalBlock",
    "ConditionalBlockGuard",
    "parent_block",
    "inputs_and_outputs",
]


class BlockGuard:
    """Context manager that makes a new nested block current.

    The block is removed if its body raises.
    """

    def __init__(self, main_program: Program) -> None:
        check_type(main_program, "main_program", Program, "BlockGuard")
        self.main_program = main_program

    def __enter__(self) -> None:
        self.main_program.create_block()

    def complete(self) -> None:
        """Run final actions while the block is still current."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        index = self.main_program.current_block_idx
        done = False
        try:
            if kind is None:
                self.complete()
                done = True
        finally:
            self.main_program.rollback()
            if not done:
                del self.main_program.blocks[index:]


def parent_block(program: Program) -> Block:
    """Return the parent of the current block."""
    return program.block(program.current_block().parent_idx)


def inputs_and_outputs(
    ops: Sequence[Operator], known: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Return the external inputs (read before written) and the outputs of ops, in order.

    `known` are names that count as already written.
    """
    read: dict[str, None] = {}
    written: dict[str, None] = dict.fromkeys(known)
    for op in ops:
        read |= {name: None for name in op.reads() if name not in written}
        written |= dict.fromkeys(op.writes())
    return list(read), list(written)


class ConditionalBlock:
    """A block that runs if the scalar `inputs` is true, or otherwise if no input is empty.

    with ConditionalBlock([condition], is_scalar_condition=True).block(): …
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        is_scalar_condition: bool = False,
        name: str | None = None,
    ) -> None:
        for variable in inputs:
            check_variable(variable, "inputs", "ConditionalBlock")
        self.inputs = list(inputs)
        self.is_scalar_condition = is_scalar_condition
        self.helper = LayerHelper("conditional_block", name=name)

    def block(self) -> ConditionalBlockGuard:
        """Return a guard: layers called in its `with` statement are appended to the block."""
        return ConditionalBlockGuard(self)

    def complete(self) -> None:
        """Append the op that owns the current block to its parent block."""
        program = self.helper.main_program
        inside, parent = program.current_block(), parent_block(program)
        read, written = inputs_and_outputs(inside.ops)
        outer = [name for name in written if parent.find_var_recursive(name) is not None]
        scope = parent.create_var(type=VarDesc.VarType.STEP_SCOPES)
        parent.append_op(
            "conditional_block",
            inputs={"Cond": self.inputs, "Input": [parent.var_recursive(n) for n in read]},
            outputs={"Out": outer, "Scope": scope},
            attrs={"sub_block": inside, "is_scalar_condition": self.is_scalar_condition},
        )


class ConditionalBlockGuard(BlockGuard):
    """Guard returned by `ConditionalBlock.block`."""

    def __init__(self, block: ConditionalBlock) -> None:
        check_type(block, "block", ConditionalBlock, "ConditionalBlockGuard")
        super().__init__(block.helper.main_program)
        self.block = block

    def complete(self) -> None:
        """Append the op that owns the block."""
        self.block.complete()


def create_parent_variable(
    program: Program, like: Variable, **fields: Unpack[VariableFields]
) -> Variable:
    """Create a variable in the parent block with the type of `like`."""
    declared: VariableFields = {"dtype": like.dtype, "shape": like.shape, "type": like.type}
    return parent_block(program).create_var(**{**declared, **fields})
