"""Recomputation of forward segments in the backward pass, to save memory in training.

Checkpoints divide the forward pass into segments. Once a segment has run, only what later ops read
is kept; before the first gradient op that needs more, a copy of the segment's ops is inserted,
writing `<variable>.subprog_<n>` (Chen et al., 2016). The part after the last checkpoint is kept,
since the backward pass begins with it. An op that would not reproduce its result (a random one, one
with a block, one that reads what was overwritten since) is not repeated; its results are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compiler.ir.opdef import find
from compiler.ir.program import OpDesc, OpRole
from fluid.recording.variable import AbstractBlock

__all__ = ["recompute_segments"]


def recompute_segments(
    block: AbstractBlock, forward: Sequence[OpDesc], checkpoints: Iterable[str]
) -> None:
    """Rewrite the gradient ops of a block, those after `forward`, to read recomputed values.

    A checkpoint that no forward op computes has no effect.
    """
    saved = set(checkpoints)
    ends = [i + 1 for i, op in enumerate(forward) if saved.intersection(op.writes())]
    repeatable = _repeatable(block, forward)
    for number, (start, end) in enumerate(reversed(list(zip([0, *ends], ends, strict=False)))):
        segment = [op for op in forward[start:end] if id(op) in repeatable]
        outside = {name for op in forward[:start] for name in op.reads() + op.writes()}
        outside |= {name for op in forward[end:] for name in op.reads()}
        outside |= {n for op in forward[start:end] if op not in segment for n in op.writes()}
        written = {name for op in segment for name in op.writes()}
        again = {name for name in written - outside - saved if not _is_state(block, name)}
        _repeat(block, len(forward), segment, again, f".subprog_{number}")


def _repeatable(block: AbstractBlock, forward: Sequence[OpDesc]) -> set[int]:
    """Return the ids of ops that produce the same results when run again at the end."""
    renewed: set[str] = set()
    repeatable: set[int] = set()
    for op in reversed(forward):
        stale = renewed | {name for name in op.writes() if not _is_state(block, name)}
        is_plain = not find(op.type).is_random and "sub_block" not in op.attrs
        if is_plain and not stale.intersection(op.reads()):
            repeatable.add(id(op))
        renewed.update(op.writes())
    return repeatable


def _is_state(block: AbstractBlock, name: str) -> bool:
    var = block.lookup(name)
    return var is None or var.persistable


def _repeat(
    block: AbstractBlock, start: int, segment: Sequence[OpDesc], again: set[str], suffix: str
) -> None:
    """Insert copies of the ops of a segment that gradient ops need; rename the latter's inputs.

    `start` is the index of the first gradient op, `again` the names to recompute.
    """
    readers = [op for op in block.ops[start:] if again.intersection(_data_read(op))]
    if not readers:
        return
    needed = {name for op in readers for name in _data_read(op)} & again
    repeated: list[OpDesc] = []
    for op in reversed(segment):
        if needed.intersection(op.writes()):
            repeated.insert(0, op)
            needed |= again.intersection(op.reads())
    for op in readers:
        _rename(op.inputs, again.intersection(_data_read(op)), suffix)
    place = next(index for index, op in enumerate(block.ops) if op is readers[0])
    for offset, op in enumerate(repeated):
        _insert_copy(block, place + offset, op, again, suffix)


def _data_read(op: OpDesc) -> list[str]:
    """Return the inputs of which an op reads the data, not only the shape."""
    slots = find(op.type).slots
    read = (names for slot, names in op.inputs.items() if not slots[slot].shape_only)
    return [name for names in read for name in names]


def _insert_copy(
    block: AbstractBlock, index: int, op: OpDesc, again: set[str], suffix: str
) -> None:
    """Insert a copy of an op on renamed variables; state that the op updates is not updated
    twice.
    """
    inputs = {slot: list(names) for slot, names in op.inputs.items()}
    outputs = {slot: list(names) for slot, names in op.outputs.items()}
    _rename(inputs, again, suffix)
    _rename(outputs, set(op.writes()), suffix)
    for name in op.writes():
        like = block.lookup(name)
        if like is not None and block.lookup(name + suffix) is None:
            block.create_var(
                name=name + suffix,
                stop_gradient=like.stop_gradient,
                dtype=like.dtype,
                shape=like.shape,
                lod_level=like.lod_level,
            )
    attrs: dict[str, object] = {**op.attrs, "op_role": int(OpRole.BACKWARD), "op_role_var": []}
    block.add_op(op.type, inputs, outputs, attrs, op.source, index)


def _rename(slots: dict[str, list[str]], names: set[str], suffix: str) -> None:
    for slot, slot_names in slots.items():
        slots[slot] = [name + suffix if name in names else name for name in slot_names]
