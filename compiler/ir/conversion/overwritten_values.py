"""Overwritten values that are saved for backward.

A gradient op names what its forward op read or wrote. If another op has overwritten that variable
since, the gradient op of the reference reads the current value, which is wrong. Here such a value
is copied right before it is overwritten, in a copy of the program, and the gradient op reads the
copy.

Not copied are arrays, which accumulate, counters, which are decremented, and what every iteration
of a body saves anyway: the values of outer variables that it reads before it writes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import field

from compiler.ir.autodiff.grad_ops import block_owner, gradient_ops
from compiler.ir.autodiff.loop_counters import renamed
from compiler.ir.opdef import find
from compiler.ir.program import EMPTY, GRAD, Block, OpDesc, OpRole, Program, VarDesc
from compiler.support.dataclass import dataclass

SUB_BLOCK = "sub_block"
EARLIER = "@EARLIER@"
"""The infix of names of copies of overwritten values."""


def with_saved_values(program: Program) -> Program:
    """Return the program, or a copy whose gradient ops read saved values."""
    if not any(op.role & OpRole.BACKWARD for block in program.blocks for op in block.ops):
        return program
    copy = _copy_of(program)
    changed = [_Saver(block).save() for block in copy.blocks]
    return copy if any(changed) else program


def _copy_of(program: Program) -> Program:
    """Return a copy of a program with new blocks but the same variables and ops."""
    result = Program()
    for block in program.blocks:
        copy = result.add_block(block.parent_idx) if block.idx else result.blocks[0]
        copy.forward_block_idx = block.forward_block_idx
        copy.vars, copy.ops = dict(block.vars), list(block.ops)
    return result


@dataclass
class _Saver:
    """The copies for one block.

    `writers` maps names to the indices of the ops that write them, `first` to that of the first op
    that reads or writes them; `copies` has the name of the copy of a name before an index;
    `gradients` are the gradient ops that are not yet matched to a forward op.
    """

    block: Block
    writers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    first: dict[str, int] = field(default_factory=dict[str, int])
    copies: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    gradients: _Gradients = field(init=False)

    def save(self) -> bool:
        """Insert the copies that gradient ops need; returns whether there were any."""
        self.gradients = _Gradients(self.block)
        forward = [(at, op) for at, op in enumerate(self.block.ops) if _is_forward(op)]
        for at, op in forward:
            for name in (*op.reads(), *op.writes()):
                self.first.setdefault(name, at)
            for name in op.writes():
                self.writers.setdefault(name, []).append(at)
        overwritten = {name for name in self.writers if self._is_overwritten(name)}
        for at, op in reversed(forward):
            if overwritten.intersection((*op.reads(), *op.writes())):
                self._redirect(at, op, overwritten)
        for (at, name), copy in sorted(self.copies.items(), reverse=True):
            self.block.ops.insert(at, OpDesc("assign", {"X": [name]}, {"Out": [copy]}))
        return bool(self.copies)

    def _is_overwritten(self, name: str) -> bool:
        """Return whether a name is a tensor, no counter, overwritten after its first use."""
        first, desc = self.first[name], self.block.lookup(name)
        if self.writers[name][-1] == first and name not in self.block.ops[first].reads():
            return False
        writers = (self.block.ops[at] for at in self.writers[name])
        counts = any(hasattr(find(op.type), "undo") for op in writers)
        return desc is not None and desc.holds_tensor and not counts

    def _redirect(self, at: int, op: OpDesc, overwritten: set[str]) -> None:
        """Redirect gradients of the op at an index to copies of overwritten values."""
        for block, place in self.gradients.of(op):
            self.gradients.take(block, place)
            within = place if block is self.block else None
            is_plain = SUB_BLOCK not in op.attrs
            reads = overwritten.intersection(block.ops[place].reads()) if is_plain else overwritten
            for name in sorted(reads):
                for reader, number, slot in _readers(block, place, op, name):
                    seen_after = slot in op.outputs or name not in op.reads()
                    over = self._copy_index(name, at + seen_after, within)
                    if over is not None:
                        self._read_copy(reader, number, slot, name, self._copy(name, over))

    def _copy_index(self, name: str, start: int, place: int | None) -> int | None:
        """Return the index before which to copy the value a name has at `start`, or None.

        None if the value is still intact for the reader at index `place` of this block. A gradient
        of the block itself (`place` is None) sees the value at the end of an iteration, or at its
        start if the iteration reads it first.
        """
        behind = next((at for at in self.writers[name] if at >= start), None)
        if place is not None:
            return behind if behind is not None and behind < place else None
        is_entry = name in self.block.ops[self.first[name]].reads() and name not in self.block.vars
        if not is_entry:
            return behind
        if self.writers[name][0] >= start:
            return None
        return len(self.block.ops) if behind is None else behind

    def _copy(self, name: str, over: int) -> str:
        """Declare the copy of a name before the op at index `over`; returns the copy's name."""
        copy = self.copies.setdefault((over, name), f"{name}{EARLIER}{over}")
        like = self.block.lookup(name)
        assert like is not None
        kind, level = like.kind, like.lod_level
        desc = VarDesc(copy, like.dims, like.element, kind, level, stop_gradient=True)
        self.block.vars.setdefault(copy, desc)
        return copy

    def _read_copy(self, block: Block, place: int, slot: str, name: str, copy: str) -> None:
        op = block.ops[place]
        inputs = op.inputs | renamed({slot: op.inputs[slot]}, name, copy)
        block.ops[place] = OpDesc(op.type, inputs, op.outputs, op.attrs, op.source)


def _is_forward(op: OpDesc) -> bool:
    return not op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE)


# ---- matching gradient ops to forward ops --------------------------------------------------------


class _Gradients:
    """The gradient ops of a block, in it or in its gradient, that no forward op has taken."""

    def __init__(self, block: Block) -> None:
        self._block = block
        others = [other for other in block.owner.blocks if other.forward_block_idx == block.idx]
        self._places: list[tuple[Block, dict[str, dict[int, None]]]] = []
        for candidate in [block, *others]:
            by_type: dict[str, dict[int, None]] = {}
            for place, op in enumerate(candidate.ops):
                if op.role & OpRole.BACKWARD:
                    by_type.setdefault(op.type, {})[place] = None
            self._places.append((candidate, by_type))

    def of(self, op: OpDesc) -> list[tuple[Block, int]]:
        """Return the locations of an op's gradient ops."""
        made = gradient_ops(op, lambda name: name + GRAD) if block_owner(op) is None else []
        locations: list[tuple[Block, int]] = []
        for candidate, by_type in self._places:
            if SUB_BLOCK in op.attrs:
                places = sorted(place for each in by_type.values() for place in each)
                locations += [
                    (candidate, place)
                    for place in places
                    if _is_block_gradient(self._block, candidate.ops[place], op)
                ]
            for gradient in made:
                places = by_type.get(gradient.type, {})
                matching = (p for p in places if _matches(candidate.ops[p], gradient))
                locations += [(candidate, place) for place in itertools.islice(matching, 1)]
        return locations

    def take(self, block: Block, place: int) -> None:
        """Note that the gradient op at a location has its forward op."""
        for candidate, by_type in self._places:
            if candidate is block:
                by_type[block.ops[place].type].pop(place, None)


def _is_block_gradient(block: Block, gradient: OpDesc, op: OpDesc) -> bool:
    """Return whether an op's block is the gradient of the block of another op."""
    if SUB_BLOCK not in gradient.attrs or SUB_BLOCK not in op.attrs:
        return False
    return _block_of(block, gradient).forward_block_idx == int(op.attrs[SUB_BLOCK])


def _matches(gradient: OpDesc, made: OpDesc) -> bool:
    """Return whether two ops have the same type and operands, up to gradient names.

    A gradient op may lack optional inputs and unused outputs.
    """
    slots = [(gradient.inputs, made.inputs), (gradient.outputs, made.outputs)]
    return gradient.type == made.type and all(
        len(names) == len(other.get(slot, ())) and all(map(_same_variable, names, other[slot]))
        for mine, other in slots
        for slot, names in mine.items()
        if names
    )


def _same_variable(name: str, known: str) -> bool:
    """Return whether two names are equal up to the suffix of a gradient's name."""
    return name == EMPTY or name.partition(GRAD)[:2] == known.partition(GRAD)[:2]


# ---- reads of an op's gradient ------------------------------------------------------------------


def _readers(block: Block, place: int, op: OpDesc, name: str) -> Iterator[tuple[Block, int, str]]:
    """Iterate over the slots that read a name for the gradient of an op.

    Names that the op's own block writes or declares are saved by each iteration and need no copy.
    """
    if SUB_BLOCK not in op.attrs:
        yield from _slots(block, place, name)
    elif name not in op.writes() and name not in _block_of(block, op).vars:
        yield from _nested_readers(_block_of(block, block.ops[place]), name)


def _nested_readers(block: Block, name: str) -> Iterator[tuple[Block, int, str]]:
    """Iterate over the slots of ops in a block, nested blocks included, that read a name.

    The slots of ops that own blocks are skipped: they only name gradients and read shapes.
    """
    for place, op in enumerate(block.ops):
        if SUB_BLOCK in op.attrs:
            yield from _nested_readers(_block_of(block, op), name)
        else:
            yield from _slots(block, place, name)


def _slots(block: Block, place: int, name: str) -> list[tuple[Block, int, str]]:
    """List the slots in which an op reads a name."""
    inputs = block.ops[place].inputs
    return [(block, place, slot) for slot, names in inputs.items() if name in names]


def _block_of(block: Block, op: OpDesc) -> Block:
    """Return the block that an op owns."""
    return block.owner.blocks[int(op.attrs[SUB_BLOCK])]
