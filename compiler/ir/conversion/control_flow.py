"""Conversion of `conditional_block` and `while`.

If a gradient op goes over the iterations of a block, each iteration saves what the gradient reads:
the block's own variables as of its end, and outer variables that it updates as of their read.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.errors import CompileError
from compiler.ir.conversion import carried_lod
from compiler.ir.conversion.block_walk import copying
from compiler.ir.conversion.body_walk import (
    MOST_WIDENINGS,
    SUB_BLOCK,
    BlockScan,
    Kept,
    reads_inside,
    written_outside,
)  # fmt: skip
from compiler.ir.graph import Var
from compiler.ir.program import Block, OpDesc

ENTRY = "@ENTRY"
"""The suffix of copies of values as of the start of an iteration."""


def conditional(scan: BlockScan, op: OpDesc) -> None:
    """Convert `conditional_block` to an `if` op.

    With `is_scalar_condition` all elements of every condition must be true, else none may be empty.
    """
    inner, written = converted(scan, op)
    conditions = {"Cond": [scan.read(name, op) for name in op.inputs["Cond"]]}
    kept, runs = _kept(inner, op, "Scope", written)
    scalar = bool(op.attrs.get("is_scalar_condition", False))
    scan.put("if", op, conditions, inner, same(written), kept, runs, any_element=not scalar)


def repeat(scan: BlockScan, op: OpDesc) -> None:
    """Convert `while` to a `loop` op, whose body updates the condition."""
    inner, written = converted(scan, op)
    condition = {"Cond": [scan.read(name, op) for name in op.inputs["Condition"]]}
    kept, runs = _kept(inner, op, "StepScopes", written)
    scan.put("loop", op, condition, inner, same(written), kept, runs)


def same(names: Sequence[str]) -> dict[str, str]:
    """Map names to themselves."""
    return dict(zip(names, names, strict=True))


def converted(scan: BlockScan, op: OpDesc) -> tuple[BlockScan, list[str]]:
    """Convert the block that an op owns; returns the walk and the outer names it writes."""
    block = scan.body_of(op)
    carried: list[str] = []
    for _ in range(MOST_WIDENINGS):
        inner = scan.inner(block)
        scan.see_all(op, written_outside(block), inner)
        levels = carried_lod.enter(scan, inner, carried)
        for each in block.ops:
            inner.add(each)
        written = [name for name in written_outside(block) if name in inner.current]
        carried_lod.leave(inner, carried)
        changed = [n for n in carried_lod.changed(inner, written) if n not in carried]
        for name in changed:
            carried_lod.separate(scan, inner, name)
        carried += changed
        if not scan.widen(inner, [*written, *levels]) and not changed:
            return inner, written
    raise CompileError(f"the sizes in the block of {op.type} do not converge", source=op.source)


def _kept(
    inner: BlockScan, op: OpDesc, slot: str, written: Sequence[str]
) -> tuple[list[Kept], str]:
    """Return the values each iteration saves and the name of the list; none without gradient."""
    runs = next(iter(op.outputs.get(slot, [])), "")
    gradients = gradient_blocks(inner.block, runs)
    return (kept_values(inner, gradients, written, op), runs) if gradients else ([], "")


def gradient_blocks(block: Block, runs: str) -> list[Block]:
    """List the blocks of the gradient ops that read the saved iterations `runs`."""
    blocks = block.owner.blocks
    owners = (op for each in blocks for op in each.ops if SUB_BLOCK in op.attrs)
    asking = [op for op in owners if op.type.endswith("_grad") and runs in op.reads()]
    return [blocks[int(op.attrs[SUB_BLOCK])] for op in asking]


def kept_values(
    inner: BlockScan, gradients: Sequence[Block], written: Sequence[str], op: OpDesc
) -> list[Kept]:
    """List what gradient blocks read: local variables, and outer ones it updates."""
    asked = dict.fromkeys(name for block in gradients for name in reads_inside(block))
    counted = {name for block in gradients for each in block.ops for name in each.writes()}
    kept: list[Kept] = []
    for name in asked:
        if name in inner.block.vars and name in inner.current:
            kept.append(keep(inner, name, inner.current[name]))
        elif name in written and name not in inner.block.vars:
            entry = name not in counted and _reads_first(inner.block, name)
            kept.append(keep(inner, name, at_entry(inner, name, op.source) if entry else None))
    return kept


def keep(inner: BlockScan, name: str, var: Var | None) -> Kept:
    """Return a value to save, with its LoD; by default the current var of the name."""
    found = var or inner.current[name]
    levels = (_unchanged(inner, level) for level in inner.lod_of(found))
    return Kept(name, found, tuple(levels))


def _unchanged(inner: BlockScan, level: Var) -> Var:
    """Return a LoD level; if the iteration updates it, a copy made at its start."""
    if level.role != "feed" or inner.current[level.name] is level:
        return level
    return inner.graph.find(level.name + ENTRY) or at_entry(inner, level.name) or level


def at_entry(inner: BlockScan, name: str, source: str = "") -> Var | None:
    """Copy the value of a name at the start of the iteration; None if it had none."""
    feed = inner.graph.find(name)
    if feed is None or feed.role != "feed":
        return None
    copy = inner.graph.var(name + ENTRY, feed.type)
    first = inner.graph.op(copying(feed), {"X": [feed]}, {"Out": [copy]}, {}, source)
    inner.graph.reorder([first, *(each for each in inner.graph.ops() if each is not first)])
    inner.lods[copy] = inner.lod_of(feed)
    return copy


def _reads_first(block: Block, name: str) -> bool:
    """Return whether a block reads a variable before it writes it."""
    touching = (op for op in block.ops if name in op.reads() or name in op.writes())
    return name in next(touching).reads()
