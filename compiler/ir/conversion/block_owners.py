"""Checks of ops that own blocks, before anything follows the block references.

A program read from a file may be malformed: a block may contain itself, a state may lack a name.
Code that walks blocks relies on these checks, which run once per program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from compiler.errors import BadAttribute, CompileError, MissingSlot
from compiler.ir.opdef.type_inference import bind
from compiler.ir.program import EMPTY, Block, OpDesc, Program
from compiler.support.limits import MAX_NESTED_BLOCKS

SUB_BLOCK = "sub_block"
"""The attribute with the index of the block that an op owns."""

_NEEDED = {
    "conditional_block_grad": ("Scope",),
    "recurrent": ("inputs",),
    "recurrent_grad": ("inputs", "step_scopes"),
    "while_grad": ("StepScopes",),
}
"""Required inputs of ops that own blocks."""


def check_owners(program: Program, kinds: Collection[str]) -> None:
    """Check all ops that own blocks: those of `kinds` and those with a `sub_block`.

    Raises CompileError for a block that does not exist or that contains the op, BadAttribute for
    attributes of wrong types or unpaired states, MissingSlot for missing inputs. In programs of
    1.8.5 a sub-block always comes after the block of its op.
    """
    for block in program.blocks:
        for op in block.ops:
            if SUB_BLOCK in op.attrs or op.type in kinds:
                _check_block(block, op)
            if op.type in kinds:
                _check_names(op)


def _check_block(block: Block, op: OpDesc) -> None:
    owned, count = op.attrs.get(SUB_BLOCK), len(block.owner.blocks)
    if block.depth >= MAX_NESTED_BLOCKS:
        raise CompileError(
            f"{op.type} in block {block.idx} nests more than {MAX_NESTED_BLOCKS} blocks",
            source=op.source,
        )
    if not isinstance(owned, int) or owned not in range(block.idx + 1, count):
        raise CompileError(
            f"{op.type} in block {block.idx} of {count} has the {SUB_BLOCK} {owned!r}, expected "
            "the index of a later block",
            source=op.source,
        )


def _check_names(op: OpDesc) -> None:
    bind(op)
    for slot in _NEEDED.get(op.type, ()):
        if not op.inputs.get(slot):
            raise MissingSlot(f"Input {slot} not found: {op.type} needs it", source=op.source)
    if op.type.startswith("recurrent"):
        _check_states(op)


def _check_states(op: OpDesc) -> None:
    """Check that each state has a name before and after the step, and an initial value."""
    before, behind = op.attrs.get("ex_states", []), op.attrs.get("states", [])
    initial, outputs = op.inputs.get("initial_states", []), op.outputs.get("outputs", [])
    if not len(before) == len(behind) == len(initial):
        counts = f"{len(before)} ex_states, {len(behind)} states, {len(initial)} initial_states"
        raise BadAttribute(f"{op.type} has {counts}, expected equal numbers", source=op.source)
    for names in (before, op.inputs["inputs"], outputs):
        twice = [name for name, count in Counter(names).items() if count > 1 and name != EMPTY]
        if twice:
            raise CompileError(f"{op.type} names {twice[0]!r} twice", source=op.source)


def outer_writes(block: Block) -> list[str]:
    """List outer variables that a block or a nested block writes, in order of first write."""
    written = dict.fromkeys(name for op in block.ops for name in _writes(block, op))
    return [name for name in written if name not in block.vars]


def _writes(block: Block, op: OpDesc) -> Iterator[str]:
    yield from op.writes()
    if SUB_BLOCK in op.attrs:
        yield from outer_writes(block.owner.blocks[int(op.attrs[SUB_BLOCK])])


def nested_reads(block: Block) -> Iterator[str]:
    """Iterate over all names that the ops of a block and of nested blocks read."""
    for op in block.ops:
        yield from op.reads()
        if SUB_BLOCK in op.attrs:
            yield from nested_reads(block.owner.blocks[int(op.attrs[SUB_BLOCK])])
