"""What is asked of ops that own blocks before anyone follows them there.

A program from a file may say anything: that a block lies in itself, that a state has no name. Who
walks through blocks trusts what is checked here, once for each program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from compiler.errors import BadAttribute, CompileError, MissingSlot
from compiler.ir.opdef.type_inference import bind
from compiler.ir.program import EMPTY, Block, OpDesc, Program
from compiler.limits import MAX_NESTED_BLOCKS

SUB_BLOCK = "sub_block"

"""Attributes that are lists of names."""

_NEEDED = {
    "conditional_block_grad": ("Scope",),
    "recurrent": ("inputs",),
    "recurrent_grad": ("inputs", "step_scopes"),
    "while_grad": ("StepScopes",),
}
"""Inputs that these ops cannot do without."""


def check_owners(program: Program, kinds: Collection[str]) -> None:
    """Hold the ops that own blocks, `kinds` and all that say so, against what they must say.

    Raises CompileError for a block that is not there or that the op itself lies in, BadAttribute
    for attributes of other types or states that do not pair, MissingSlot for inputs left out. Any
    block of 1.8.5 comes behind the one that its op is in.
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
            f"{op.type} in block {block.idx} of {count} has the {SUB_BLOCK} {owned!r}, and none of "
            "those behind its own",
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
    """Each state of a step has a name before it, one behind it, and what it begins with."""
    before, behind = op.attrs.get("ex_states", []), op.attrs.get("states", [])
    initial, outputs = op.inputs.get("initial_states", []), op.outputs.get("outputs", [])
    if not len(before) == len(behind) == len(initial):
        counts = f"{len(before)} ex_states, {len(behind)} states, {len(initial)} initial_states"
        raise BadAttribute(f"{op.type} has {counts}: there must be as many", source=op.source)
    for names in (before, op.inputs["inputs"], outputs):
        twice = [name for name, count in Counter(names).items() if count > 1 and name != EMPTY]
        if twice:
            raise CompileError(f"{op.type} names {twice[0]!r} twice", source=op.source)
