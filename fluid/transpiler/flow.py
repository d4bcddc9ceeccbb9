"""Data flow of a program: reads and writes of ops, including owned blocks, and the source of reads.

A rewrite that only renames can be verified: if every op reads values from the same ops as
before, no value was overwritten too early. `sources` is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from compiler.ir.program import NO_BLOCK, BlockRef
from compiler.support.dataclass import dataclass
from fluid.framework import Block, Operator, Program
from fluid.recording.narrowing import is_sequence

__all__ = ["Source", "inner_blocks", "names_inside", "reads", "sources", "writes"]

DELETE = "delete_var"

Source = tuple[object, ...]
"""Source of a read value: an op's index and output position, or a name."""


def inner_blocks(program: Program, op: Operator) -> list[Block]:
    """The blocks that an op owns."""
    return [program.blocks[ref] for value in op.attrs.values() for ref in _refs(value)]


def _refs(value: object) -> list[BlockRef]:
    """The blocks in the value of an attribute."""
    if is_sequence(value):
        return [item for item in value if isinstance(item, BlockRef)]
    return [value] if isinstance(value, BlockRef) else []


def reads(program: Program, op: Operator) -> list[str]:
    """The names that an op reads, and those that its blocks read from enclosing blocks."""
    names = dict.fromkeys(op.reads())
    for block in inner_blocks(program, op):
        inner = (name for inner_op in block.ops for name in reads(program, inner_op))
        names |= dict.fromkeys(name for name in inner if name not in block.vars)
    return list(names)


def writes(program: Program, op: Operator) -> list[str]:
    """The names that an op writes, and those that its blocks write in enclosing blocks."""
    names = dict.fromkeys(op.writes())
    for block in inner_blocks(program, op):
        inner = (name for inner_op in block.ops for name in writes(program, inner_op))
        names |= dict.fromkeys(name for name in inner if name not in block.vars)
    return list(names)


def names_inside(program: Program, op: Operator) -> set[str]:
    """Every name mentioned in the blocks of an op, or in its slots if it owns blocks."""
    blocks = inner_blocks(program, op)
    names = {*op.reads(), *op.writes()} if blocks else set[str]()
    for inner_op in (inner_op for block in blocks for inner_op in block.ops):
        names |= {*inner_op.reads(), *inner_op.writes(), *names_inside(program, inner_op)}
    return names


def sources(program: Program) -> list[Source]:
    """The source of each read of each op, ignoring deletions.

    Two programs of the same ops compute the same if these lists are equal. A value deleted
    by a `delete_var` has the source ("deleted",).
    """
    return list(_Walk(program).block(program.blocks[0], {}))


@dataclass
class _Walk:
    """A walk over a program in op order; `ends` are the known sources at the end of each block."""

    program: Program
    ends: dict[int, dict[str, Source]] = field(default_factory=dict[int, dict[str, Source]])
    count: int = 0

    def block(self, block: Block, around: Mapping[str, Source]) -> Iterator[Source]:
        """The sources of a block's reads; `around` has those of names in enclosing blocks."""
        origins = {**around, **self.kept(block)}
        for op in block.ops:
            if op.type == DELETE:
                origins |= dict.fromkeys(op.reads(), ("deleted",))
            else:
                yield from self.op(op, origins)
        self.ends[block.idx] = origins

    def kept(self, block: Block) -> dict[str, Source]:
        """The forward block's own variables, as seen by its gradient block."""
        if block.forward_block_idx == NO_BLOCK:
            return {}
        own = self.program.blocks[block.forward_block_idx].vars
        ends = self.ends.get(block.forward_block_idx, {})
        return {name: source for name, source in ends.items() if name in own}

    def op(self, op: Operator, known: dict[str, Source]) -> Iterator[Source]:
        """The sources of the reads of an op and its blocks; then records its writes."""
        number, self.count = self.count, self.count + 1
        for at, name in enumerate(op.reads()):
            yield (number, at, known.get(name, ("outside", name)))
        outside = [name for name in writes(self.program, op) if name not in op.writes()]
        again = {name: ("again", number, name) for name in outside}
        for inner in inner_blocks(self.program, op):
            yield from self.block(inner, {**known, **again})
        known |= {name: ("inside", number, name) for name in outside}
        known |= {name: (number, at) for at, name in enumerate(op.writes())}
