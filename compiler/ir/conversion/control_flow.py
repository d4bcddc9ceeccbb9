"""Conversion of `conditional_block` and `while`.

If a gradient op runs over the iterations of a block, each iteration saves what the gradient reads:
the block's own variables as of its end, and outer variables that it updates as of their read.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.errors import CompileError
from compiler.ir.conversion import carried_lod
from compiler.ir.conversion.block_owners import SUB_BLOCK, nested_reads, outer_writes
from compiler.ir.conversion.block_walk import MAX_WIDENINGS, BlockWalk, SavedValue, copying
from compiler.ir.graph import Var
from compiler.ir.program import Block, OpDesc

ENTRY = "@ENTRY"
"""The suffix of copies of values as of the start of an iteration."""


def conditional(walk: BlockWalk, op: OpDesc) -> None:
    """Convert `conditional_block` to an `if` op.

    With `is_scalar_condition` all elements of every condition must be true, else none may be empty.
    """
    inner, written = convert_block(walk, op)
    _cast_to_state(inner, written, op)
    conditions = {"Cond": [walk.read(name, op) for name in op.inputs["Cond"]]}
    saved, runs = _saved(inner, op, "Scope", written)
    scalar = bool(op.attrs.get("is_scalar_condition", False))
    walk.put("if", op, conditions, inner, same(written), saved, runs, any_element=not scalar)


def _cast_to_state(inner: BlockWalk, written: Sequence[str], op: OpDesc) -> None:
    """Cast what a branch writes to persistable state to the dtype that the state has before.

    fluid's Executor selects the branch before it compiles, and keeps the dtype written; where it
    cannot, as on several devices, the storage of the state decides.
    """
    for name in written:
        before, after = inner.current.captured.get(name), inner.current[name].type.dtype
        if before is not None and before.role == "param" and before.type.dtype is not after:
            attrs = {"in_dtype": after.code, "out_dtype": before.type.dtype.code}
            inner.add(OpDesc("cast", {"X": [name]}, {"Out": [name]}, attrs, op.source))


def repeat(walk: BlockWalk, op: OpDesc) -> None:
    """Convert `while` to a `loop` op, whose body updates the condition."""
    inner, written = convert_block(walk, op)
    condition = {"Cond": [walk.read(name, op) for name in op.inputs["Condition"]]}
    saved, runs = _saved(inner, op, "StepScopes", written)
    walk.put("loop", op, condition, inner, same(written), saved, runs)


def same(names: Sequence[str]) -> dict[str, str]:
    """Map names to themselves."""
    return dict(zip(names, names, strict=True))


def convert_block(walk: BlockWalk, op: OpDesc) -> tuple[BlockWalk, list[str]]:
    """Convert the block that an op owns; returns the walk and the outer names it writes."""
    block = walk.body_of(op)
    carried: list[str] = []
    for _ in range(MAX_WIDENINGS):
        inner = walk.inner(block)
        walk.capture_updated(op, outer_writes(block), inner)
        levels = carried_lod.enter(walk, inner, carried)
        for inner_op in block.ops:
            inner.add(inner_op)
        written = [name for name in outer_writes(block) if name in inner.current]
        carried_lod.leave(inner, carried)
        changed = [n for n in carried_lod.changed(inner, written) if n not in carried]
        for name in changed:
            carried_lod.separate(walk, inner, name)
        carried += changed
        if not walk.widen(inner, [*written, *levels]) and not changed:
            return inner, written
    raise CompileError(f"the sizes in the block of {op.type} do not converge", source=op.source)


def _saved(
    inner: BlockWalk, op: OpDesc, slot: str, written: Sequence[str]
) -> tuple[list[SavedValue], str]:
    """Return the values each iteration saves and the name of the list; none without gradient."""
    runs = next(iter(op.outputs.get(slot, [])), "")
    gradients = gradient_blocks(inner.block, runs)
    return (saved_values(inner, gradients, written, op), runs) if gradients else ([], "")


def gradient_blocks(block: Block, runs: str) -> list[Block]:
    """List the blocks of the gradient ops that read the saved iterations `runs`."""
    blocks = block.owner.blocks
    owners = (op for gradient_block in blocks for op in gradient_block.ops if SUB_BLOCK in op.attrs)
    readers = [op for op in owners if op.type.endswith("_grad") and runs in op.reads()]
    return [blocks[int(op.attrs[SUB_BLOCK])] for op in readers]


def saved_values(
    inner: BlockWalk, gradients: Sequence[Block], written: Sequence[str], op: OpDesc
) -> list[SavedValue]:
    """List what gradient blocks read: local variables, and outer ones it updates."""
    names = dict.fromkeys(name for block in gradients for name in nested_reads(block))
    counted = {
        name for block in gradients for gradient_op in block.ops for name in gradient_op.writes()
    }
    saved: list[SavedValue] = []
    for name in names:
        if name in inner.block.vars and name in inner.current:
            saved.append(save_value(inner, name, inner.current[name]))
        elif name in written and name not in inner.block.vars:
            entry = name not in counted and _reads_first(inner.block, name)
            saved.append(
                save_value(inner, name, entry_copy(inner, name, op.source) if entry else None)
            )
    return saved


def save_value(inner: BlockWalk, name: str, var: Var | None) -> SavedValue:
    """Return a value to save, with its LoD; by default the current var of the name."""
    source = var or inner.current[name]
    levels = (_level_to_save(inner, level) for level in inner.companions.lod_of(source))
    return SavedValue(name, source, tuple(levels))


def _level_to_save(inner: BlockWalk, level: Var) -> Var:
    """Return a LoD level; if the iteration updates it, a copy made at its start."""
    if level.role != "feed" or inner.current[level.name] is level:
        return level
    return inner.graph.find(level.name + ENTRY) or entry_copy(inner, level.name) or level


def entry_copy(inner: BlockWalk, name: str, source: str = "") -> Var | None:
    """Copy the value of a name at the start of the iteration; None if it had none."""
    feed = inner.graph.find(name)
    if feed is None or feed.role != "feed":
        return None
    copy = inner.graph.var(name + ENTRY, feed.type)
    first = inner.graph.op(copying(feed), {"X": [feed]}, {"Out": [copy]}, {}, source)
    inner.graph.reorder([first, *(op for op in inner.graph.ops() if op is not first)])
    inner.companions.lods[copy] = inner.companions.lod_of(feed)
    return copy


def _reads_first(block: Block, name: str) -> bool:
    """Return whether a block reads a variable before it writes it."""
    touching = (op for op in block.ops if name in op.reads() or name in op.writes())
    return name in next(touching).reads()
