"""Removal of ops from a program, with their blocks and variables.

`Program.clone(for_test=True)` removes training ops; `Program._prune` keeps the ops a target
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from compiler.ir.program import MAIN_BLOCK, Block, BlockRef, OpDesc, OpRole, Program

_UPDATES = OpRole.OPTIMIZE | OpRole.LRSCHED
_LOSS_GRADIENT = OpRole.BACKWARD | OpRole.LOSS


def drop_training(program: Program) -> None:
    """Remove the ops that update parameters, schedule learning rates, or compute gradients of a
    loss.

    As in the reference, gradients are part of a model without a loss (`fluid.gradients`).
    """
    ops = [op for block in program.blocks for op in block.ops]  # a branch may train, too
    has_loss = any(op.role & _LOSS_GRADIENT == _LOSS_GRADIENT for op in ops)
    roles = _UPDATES | OpRole.BACKWARD if has_loss else _UPDATES
    drop_ops(program, lambda op: bool(op.role & roles))


def drop_ops(program: Program, unwanted: Callable[[OpDesc], bool]) -> None:
    """Remove ops, and the blocks, variables and operands of ops with blocks that only they used."""
    unused_before = {var.name for var in program.all_vars()} - _used(program)
    before = {block.idx: _operands(program, block.idx) for block in program.blocks}
    for block in program.blocks:
        block.ops = [op for op in block.ops if not unwanted(op)]
    for block in reversed(program.blocks):  # inner blocks first
        for op in block.ops:
            _drop_operands(program, op, before)
    drop_blocks(program)
    _drop_vars(program, _used(program) | unused_before)


def _operands(program: Program, index: int) -> tuple[set[str], set[str]]:
    """The names that the ops of a block read and write, with those of their own blocks."""
    reads, writes = set[str](), set[str]()
    for op in program.blocks[index].ops:
        inner = [_operands(program, ref) for ref in _refs(op)]
        reads.update(op.reads(), *(read for read, _ in inner))
        writes.update(op.writes(), *(written for _, written in inner))
    return reads, writes


def _drop_operands(
    program: Program, op: OpDesc, before: Mapping[int, tuple[set[str], set[str]]]
) -> None:
    """Remove the operands of an op that its blocks used before, and use no longer."""
    for ref in _refs(op):
        now = _operands(program, ref)
        for slots, then, still in zip((op.inputs, op.outputs), before[ref], now, strict=True):
            for slot, names in slots.items():
                slots[slot] = [name for name in names if name in still or name not in then]


def keep_needed(
    program: Program,
    feeds: Collection[str],
    targets: Collection[str],
    updates: Collection[int] = (),
) -> None:
    """Keep the ops of the main block that compute `targets` from `feeds`, with their variables.

    Of the ops that update parameters only `updates` are kept, which are indices in the block, with
    all that they need: a target is computed by the forward pass.
    """
    main = program.blocks[MAIN_BLOCK]
    needed = set(targets) - set(feeds)
    remaining: list[OpDesc] = []
    for index, op in reversed([*enumerate(main.ops)]):
        computes = needed.intersection(op.writes()) and not updates_state(main, op)
        if index in updates or computes:
            remaining.insert(0, op)
            needed |= {name for name in reads_of(program, op) if name not in feeds}
    main.ops = remaining
    drop_blocks(program)
    _drop_vars(program, _used(program) | set(feeds) | set(targets))


def unwritten_state(block: Block) -> set[str]:
    """The persistable variables of a block that none of its ops writes."""
    written = {name for op in block.ops for name in op.writes()}
    return {name for name, var in block.vars.items() if var.persistable} - written


def updates_state(block: Block, op: OpDesc) -> bool:
    """Whether an op is an optimizer's and writes state; others clip or regularize gradients."""
    descs = [block.lookup(name) for name in op.writes()] if op.role & OpRole.OPTIMIZE else []
    return any(desc is not None and desc.persistable for desc in descs)


def reads_of(program: Program, op: OpDesc) -> Iterator[str]:
    """The names an op reads, including those of its blocks."""
    yield from op.reads()
    for ref in _refs(op):
        for inner in program.blocks[ref].ops:
            yield from reads_of(program, inner)


def _refs(op: OpDesc) -> list[int]:
    """The blocks an op owns."""
    return [int(value) for value in op.attrs.values() if isinstance(value, BlockRef)]


def _used(program: Program) -> set[str]:
    ops = [op for block in program.blocks for op in block.ops]
    return {name for op in ops for name in [*op.reads(), *op.writes()]}


def _drop_vars(program: Program, kept: Collection[str]) -> None:
    for block in program.blocks:
        block.vars = {name: var for name, var in block.vars.items() if name in kept}
    program.touch()


def drop_blocks(program: Program) -> None:
    """Remove blocks that no op owns, and renumber the others."""
    reached = _reached(program, program.blocks[MAIN_BLOCK])
    reached_blocks = [block for block in program.blocks if block.idx in reached]
    renumbered = {block.idx: index for index, block in enumerate(reached_blocks)}
    for block in reached_blocks:
        block.idx = renumbered[block.idx]
        block.parent_idx = renumbered.get(block.parent_idx, block.parent_idx)
        for op in block.ops:
            op.attrs = {name: _renumber(value, renumbered) for name, value in op.attrs.items()}
    program.blocks = reached_blocks


def _reached(program: Program, block: Block) -> set[int]:
    inner = [program.blocks[ref] for op in block.ops for ref in _refs(op)]
    return {block.idx}.union(*(_reached(program, child) for child in inner))


def _renumber(value: object, renumbered: dict[int, int]) -> object:
    return BlockRef(renumbered[value]) if isinstance(value, BlockRef) else value
