"""Blocks that an op runs as they are: `conditional_block` and `while`."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.errors import CompileError
from compiler.ir.body_scan import (
    MOST_WIDENINGS,
    BlockScan,
    kept_names,
    with_levels,
    written_outside,
)  # fmt: skip
from compiler.ir.program import OpDesc
from compiler.ir.scan import Slots


def conditional(scan: BlockScan, op: OpDesc) -> None:
    """`conditional_block`: run the body where all of every condition is true."""
    inner, written = converted(scan, op)
    conditions = [scan.read(name, op) for name in op.inputs["Cond"]]
    _put_forward(scan, op, "if", {"Cond": conditions}, inner, written, "Scope")


def repeat(scan: BlockScan, op: OpDesc) -> None:
    """`while`: run the body as long as the condition holds, which it changes."""
    inner, written = converted(scan, op)
    condition = [scan.read(name, op) for name in op.inputs["Condition"]]
    _put_forward(scan, op, "loop", {"Cond": condition}, inner, written, "StepScopes")


def converted(scan: BlockScan, op: OpDesc) -> tuple[BlockScan, list[str]]:
    """The walk over the block of an op that runs it as it is, and what it leaves outside."""
    block = scan.body_of(op)
    for _ in range(MOST_WIDENINGS):
        inner = scan.inner(block)
        scan.see_all(op, written_outside(block), inner)
        for each in block.ops:
            inner.add(each)
        written = [name for name in written_outside(block) if name in inner.current]
        if not scan.widen(inner, written):
            return inner, written
    raise CompileError(f"the sizes in the block of {op.type} never settle", source=op.source)


def _put_forward(
    scan: BlockScan, op: OpDesc, kind: str, inputs: Slots, inner: BlockScan,
    written: Sequence[str], scopes: str,
) -> None:  # fmt: skip
    runs = next(iter(op.outputs.get(scopes, [])), "")
    names = kept_names(inner.block, runs) if runs else []
    saved = with_levels(inner, [name for name in names if name in inner.current])
    scan.put(kind, op, inputs, inner, written, saved, runs if saved else "")
