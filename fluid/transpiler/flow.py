"""What ops of a program touch, blocks that they own included, and which op each of them reads from.

A rewrite that only renames may be proven right: if every op reads what the same ops wrote as
before, no value was clobbered. `sources` is what is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from compiler.ir.program import NO_BLOCK, Block, BlockRef, OpDesc, Program

__all__ = ["Source", "inner_blocks", "names_inside", "reads", "sources", "writes"]

DELETE = "delete_var"

Source = tuple[object, ...]
"""Where a read value comes from: an op's number and the place among its outputs, or a name."""


def inner_blocks(program: Program, op: OpDesc) -> list[Block]:
    """The blocks that an op owns."""
    values = [v for value in op.attrs.values() for v in (value if _is_list(value) else [value])]
    return [program.blocks[ref] for ref in values if isinstance(ref, BlockRef)]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def reads(program: Program, op: OpDesc) -> list[str]:
    """The names that an op reads, and those that its blocks read from around them."""
    found = dict.fromkeys(op.reads())
    for block in inner_blocks(program, op):
        inner = (name for each in block.ops for name in reads(program, each))
        found |= dict.fromkeys(name for name in inner if name not in block.vars)
    return list(found)


def writes(program: Program, op: OpDesc) -> list[str]:
    """The names that an op writes, and those that its blocks write around them."""
    found = dict.fromkeys(op.writes())
    for block in inner_blocks(program, op):
        inner = (name for each in block.ops for name in writes(program, each))
        found |= dict.fromkeys(name for name in inner if name not in block.vars)
    return list(found)


def names_inside(program: Program, op: OpDesc) -> set[str]:
    """Every name that is mentioned in the blocks of an op, or by its slots if it has some."""
    blocks = inner_blocks(program, op)
    found = {*op.reads(), *op.writes()} if blocks else set[str]()
    for each in (each for block in blocks for each in block.ops):
        found |= {*each.reads(), *each.writes(), *names_inside(program, each)}
    return found


def sources(program: Program) -> list[Source]:
    """For each read of each op of a program, where its value comes from; deletions do not count.

    Two programs of the same ops compute the same if these lists are equal. A value that a
    `delete_var` took has the source ("deleted",).
    """
    return list(_Walk(program).block(program.blocks[0], {}))


@dataclass
class _Walk:
    """A walk over a program in the order of its ops; `ends` is what stood where a block ended."""

    program: Program
    ends: dict[int, dict[str, Source]] = field(default_factory=dict)
    count: int = 0

    def block(self, block: Block, around: Mapping[str, Source]) -> Iterator[Source]:
        """The sources of a block's reads; `around` has those of the names around it."""
        known = {**around, **self.kept(block)}
        for op in block.ops:
            if op.type == DELETE:
                known |= dict.fromkeys(op.reads(), ("deleted",))
            else:
                yield from self.op(op, known)
        self.ends[block.idx] = known

    def kept(self, block: Block) -> dict[str, Source]:
        """What a block of gradients finds of its forward block: that one's own variables."""
        if block.forward_block_idx == NO_BLOCK:
            return {}
        own = self.program.blocks[block.forward_block_idx].vars
        ends = self.ends.get(block.forward_block_idx, {})
        return {name: source for name, source in ends.items() if name in own}

    def op(self, op: OpDesc, known: dict[str, Source]) -> Iterator[Source]:
        """The sources of an op's reads and of those in its blocks; then what it writes is known."""
        number, self.count = self.count, self.count + 1
        for at, name in enumerate(op.reads()):
            yield (number, at, known.get(name, ("outside", name)))
        outside = [name for name in writes(self.program, op) if name not in op.writes()]
        again = {name: ("again", number, name) for name in outside}
        for inner in inner_blocks(self.program, op):
            yield from self.block(inner, {**known, **again})
        known |= {name: ("inside", number, name) for name in outside}
        known |= {name: (number, at) for at, name in enumerate(op.writes())}
