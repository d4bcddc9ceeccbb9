"""Regions of ops over which live ranges of variables are computed, and the names to keep.

A unit is the main block, or a block that an op runs together with its gradient block: forward
values that the gradient reads are live until then. Live ranges come from a backward walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

from compiler.ir.conversion.reused_names import ROLE_VAR
from compiler.ir.program import GRAD, NO_BLOCK, OpRole, VarKind
from compiler.support.dataclass import dataclass
from fluid.framework import Block, Operator, Program
from fluid.recording.narrowing import is_list
from fluid.transpiler.flow import DELETE, inner_blocks, names_inside, reads, writes

__all__ = ["OpAccesses", "Unit", "called_names", "is_temporary", "kept_names", "units"]

_NOT_FORWARD = OpRole.BACKWARD | OpRole.OPTIMIZE | OpRole.LRSCHED


@dataclass(frozen=True)
class OpAccesses:
    """An op in its block, with its reads and writes, including those of its own blocks.

    `dying` are the variables it reads and no later op of the unit does.
    """

    block: Block
    op: Operator
    reads: frozenset[str]
    writes: tuple[str, ...]
    inside: frozenset[str]
    dying: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Unit:
    """Ops in execution order, and for each name the first and the last op that uses it."""

    steps: tuple[OpAccesses, ...]
    first: dict[str, int] = field(default_factory=dict[str, int])
    last: dict[str, int] = field(default_factory=dict[str, int])


def units(program: Program) -> list[Unit]:
    """The units of a program, that of the main block first."""
    forward = [block for block in program.blocks if block.forward_block_idx == NO_BLOCK]
    return [_unit(program, block) for block in forward]


def _unit(program: Program, block: Block) -> Unit:
    blocks = [block, *(b for b in program.blocks if b.forward_block_idx == block.idx)]
    steps = [_step(program, inner_block, op) for inner_block in blocks for op in inner_block.ops]
    unit = Unit(tuple(_with_dying(steps)))
    for at, step in enumerate(unit.steps):
        for name in (*step.reads, *step.writes, *step.inside):
            unit.first.setdefault(name, at)
            unit.last[name] = at
    return unit


def _step(program: Program, block: Block, op: Operator) -> OpAccesses:
    read, inside = frozenset(reads(program, op)), frozenset(names_inside(program, op))
    return OpAccesses(block, op, read, tuple(writes(program, op)), inside)


def _with_dying(steps: list[OpAccesses]) -> list[OpAccesses]:
    live: set[str] = set()
    result: list[OpAccesses] = []
    for step in reversed(steps):
        dying = step.reads - live
        result.append(OpAccesses(step.block, step.op, step.reads, step.writes, step.inside, dying))
        live = (live - set(step.writes)) | step.reads
    return result[::-1]


def is_temporary(block: Block, name: str) -> bool:
    """Whether this block itself declares a tensor that is not persistable."""
    var = block.vars.get(name)
    return var is not None and var.kind is VarKind.TENSOR and not var.persistable and bool(var.dims)


# ---- what must stay ------------------------------------------------------------------------------


def kept_names(
    program: Program, skip: Iterable[str], *, gradients: bool, edges: bool = True
) -> set[str]:
    """Names that must neither be renamed nor deleted.

    Those of `skip`; outputs that are forced onto the CPU; variables that ops with blocks refer to
    by name, and slots that exist for these blocks. With `gradients` the gradients that optimizers
    read; with `edges` the interface: feeds, fetches, losses, and variables that no op reads.
    """
    protected = set(skip)
    for block in program.blocks:
        for op in block.ops:
            protected |= set(_forced(op, gradients))
            protected |= set(_edges(op)) if edges else set()
    return (
        protected | called_names(program) | (_fed(program) | _unread(program) if edges else set())
    )


def _forced(op: Operator, gradients: bool) -> list[str]:
    updated = gradients and op.role == OpRole.OPTIMIZE
    forced = op.writes() if op.attrs.get("force_cpu") else []
    return forced + (list(op.attrs.get(ROLE_VAR, ())[1::2]) if updated else [])


def called_names(program: Program) -> set[str]:
    """Names by which ops refer to variables of the blocks that they own, and their gradients."""
    ops = [op for block in program.blocks for op in block.ops]
    return {name for op in ops for name in _called(program, op)}


def _called(program: Program, op: Operator) -> Iterator[str]:
    if not inner_blocks(program, op):
        return
    named = [name for attr, value in op.attrs.items() if attr != ROLE_VAR for name in _names(value)]
    inner = {name for block in inner_blocks(program, op) for name in block.vars}
    for name in [*op.reads(), *op.writes(), *named]:
        yield from (called_name for called_name in (name, name + GRAD) if called_name in inner)


def _names(value: object) -> list[str]:
    """The names in the value of an attribute that is a list."""
    return [item for item in value if isinstance(item, str)] if is_list(value) else []


def _edges(op: Operator) -> list[str]:
    if op.type == "fetch":
        return op.reads()
    is_loss = op.role & OpRole.LOSS and not op.role & _NOT_FORWARD
    return op.writes() if is_loss or op.type == "feed" else []


def _fed(program: Program) -> set[str]:
    """The variables that users feed or readers yield."""
    data = {var.name for var in program.list_vars() if var.is_data}
    return data.union(*(names for _, names in program.readers))


def _unread(program: Program) -> set[str]:
    """Variables that ops write and no op reads: they exist to be fetched."""
    ops = [op for block in program.blocks for op in block.ops if op.type != DELETE]
    return {n for op in ops for n in op.writes()} - {n for op in ops for n in op.reads()}
