"""Basic blocks, their successors, and which blocks every path from a block passes.

Lanes that part at a branch meet again at the first block that all their paths pass: its immediate
post-dominator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.ptx.errors import PtxSyntaxError
from tools.ptx.instructions import Instruction, Kernel, Symbol

ENDS = ("bra", "ret", "exit", "trap", "bar", "barrier")
"""Opcodes that end a block."""


@dataclass(frozen=True)
class Block:
    """Instructions from `start`; the last one, if it is in ENDS, is `end` and not among them."""

    instructions: tuple[Instruction, ...]
    end: Instruction | None
    successors: tuple[int, ...]
    """The target of the branch comes first."""


def blocks_of(kernel: Kernel) -> tuple[Block, ...]:
    """Split a kernel at its labels and at instructions that end a block.

    Raises PtxSyntaxError for a branch to a label that is not there.
    """
    starts = _starts(kernel)
    number = {start: index for index, start in enumerate(starts)}
    stops = [*starts[1:], len(kernel.instructions)]
    return tuple(
        _block(kernel, kernel.instructions[start:stop], number, index, len(starts))
        for index, (start, stop) in enumerate(zip(starts, stops, strict=True))
    )


def _starts(kernel: Kernel) -> list[int]:
    ends = {
        i + 1 for i, instruction in enumerate(kernel.instructions) if instruction.opcode in ENDS
    }
    count = len(kernel.instructions)
    if not count:
        raise PtxSyntaxError(f"the kernel {kernel.name} is empty")
    return sorted({0, *(start for start in (*ends, *kernel.labels.values()) if start < count)})


def _block(
    kernel: Kernel,
    found: Sequence[Instruction],
    number: dict[int, int],
    index: int,
    count: int,
) -> Block:
    last = found[-1]
    if last.opcode not in ENDS:
        return Block(tuple(found), None, _following(index, count, kernel))
    inner = tuple(found[:-1])
    if last.opcode == "bra":
        target = _target(kernel, last, number)
        after = _following(index, count, kernel) if last.guard else ()
        return Block(inner, last, (target, *after))
    ends = last.opcode in ("ret", "exit", "trap") and last.guard is None
    return Block(inner, last, () if ends else _following(index, count, kernel))


def _following(index: int, count: int, kernel: Kernel) -> tuple[int, ...]:
    if index + 1 >= count:
        raise PtxSyntaxError(f"the kernel {kernel.name} does not end with ret")
    return (index + 1,)


def _target(kernel: Kernel, branch: Instruction, number: dict[int, int]) -> int:
    label = branch.operands[0] if len(branch.operands) == 1 else None
    start = kernel.labels.get(label.name, -1) if isinstance(label, Symbol) else -1
    if start not in number:
        raise PtxSyntaxError(
            f"PTX line {branch.line}: no instruction follows the label: {branch.text}"
        )
    return number[start]


def post_dominators(blocks: Sequence[Block]) -> tuple[frozenset[int], ...]:
    """For each block, the blocks that every path from it to the end passes, without itself.

    A block from which no path ends (an endless loop) has none.
    """
    immediate = _immediate(blocks)
    dominators: list[frozenset[int]] = []
    for index in range(len(blocks)):
        chain: list[int] = []
        at = immediate[index]
        while at is not None and at < len(blocks):
            chain.append(at)
            at = immediate[at]
        dominators.append(frozenset(chain))
    return tuple(dominators)


def _immediate(blocks: Sequence[Block]) -> list[int | None]:
    """The immediate post-dominator of each block; `len(blocks)` is the end (Cooper et al.)."""
    end = len(blocks)
    order = _from_the_end(blocks)
    rank = {block: position for position, block in enumerate(order)}
    dominators: list[int | None] = [None] * (end + 1)
    dominators[end] = end
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            new = _common(_exits(blocks, block), dominators, rank)
            changed |= new != dominators[block]
            dominators[block] = new
    return dominators[:end]


def _exits(blocks: Sequence[Block], block: int) -> tuple[int, ...]:
    current = blocks[block]
    ends = current.end is not None and current.end.opcode in ("ret", "exit", "trap")
    return (*current.successors, len(blocks)) if ends else current.successors


def _common(exits: Sequence[int], found: Sequence[int | None], rank: dict[int, int]) -> int | None:
    processed = [successor for successor in exits if found[successor] is not None]
    first = processed[0]
    for successor in processed[1:]:
        first = _meet(first, successor, found, rank)
    return first


def _meet(a: int, b: int, found: Sequence[int | None], rank: dict[int, int]) -> int:
    while a != b:
        if rank[a] < rank[b]:
            a, b = b, a
        up = found[a]
        assert up is not None
        a = up
    return a


def _from_the_end(blocks: Sequence[Block]) -> list[int]:
    """Blocks that reach the end, in reverse postorder of the reversed graph; the end is first."""
    end = len(blocks)
    before: list[list[int]] = [[] for _ in range(end + 1)]
    for index in range(end):
        for successor in _exits(blocks, index):
            before[successor].append(index)
    seen, post, stack = {end}, list[int](), [(end, iter(before[end]))]
    while stack:
        block, rest = stack[-1]
        following = next((index for index in rest if index not in seen), None)
        if following is None:
            post.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(before[following])))
    return post[::-1]
