"""Recomputation of forward segments in the backward pass, to save memory in training.

Checkpoints divide the ops that the loss depends on into segments, as in release 1.8.5: from the
first reader of a checkpoint to the last writer of the next one, and from the first op on. Once a
segment has run, only what other segments read is kept; before its first gradient op, a copy of its
ops is inserted, writing `<variable>.subprog_<n>` (Chen et al., 2016). The part after the last
checkpoint is kept, since the backward pass begins with it. `seed` ops draw the seeds of dropouts,
so that both runs drop the same elements. An op that would not reproduce its result (another random
one, one with a block, one that reads what was overwritten since) is not repeated; its results are
kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import pairwise

from compiler.ir.opdef import find
from compiler.ir.program import OpDesc, OpRole
from compiler.support.dataclass import dataclass
from fluid import unique_name
from fluid.recording.variable import AbstractBlock

__all__ = ["recompute_segments", "seed_dropouts"]


def seed_dropouts(block: AbstractBlock, ops: Sequence[OpDesc]) -> list[OpDesc]:
    """Give dropouts among `ops` a seed that an op draws; return `ops` with these among them."""
    seeded: list[OpDesc] = []
    for op in ops:
        if op.type == "dropout" and not op.inputs.get("Seed"):
            name = unique_name.generate(f"{unique_name.generate('seed')}.tmp")
            block.create_var(name=name, dtype="int32", shape=(1,), stop_gradient=False)
            place = next(index for index, other in enumerate(block.ops) if other is op)
            seed = op.attrs.get("seed", 0) if op.attrs.get("fix_seed") else 0
            block.add_op("seed", {}, {"Out": [name]}, {"seed": seed}, op.source, place)
            seeded.append(block.ops[place])
            op.inputs["Seed"] = [name]
            for attr in ("seed", "fix_seed"):
                op.attrs.pop(attr, None)
        seeded.append(op)
    return seeded


def recompute_segments(
    block: AbstractBlock, path: Sequence[OpDesc], start: int, checkpoints: Iterable[str]
) -> None:
    """Rewrite the gradient ops of a block, from index `start` on, to read recomputed values.

    `path` has the forward ops that the loss depends on. A checkpoint that no op of it uses has no
    effect.
    """
    uses = _Uses.of(path)
    saved = uses.in_order(checkpoints)
    segments = _segments(uses, saved)
    repeatable = _repeatable(block, path)
    kept = {*saved, *uses.inputs(block)}
    kept |= {name for op in path if op.type in ("read", "seed") for name in op.writes()}
    kept |= {name for op in path if id(op) not in repeatable for name in op.writes()}
    for first, end in segments:
        kept |= uses.across(first, end)
    for number, (first, end) in enumerate(reversed(segments)):
        _repeat(block, start, path[first:end], kept, f".subprog_{number}")


@dataclass
class _Uses:
    """Which ops of a path read and write a name, by their indices in it."""

    path: Sequence[OpDesc]
    reads: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    writes: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, path: Sequence[OpDesc]) -> _Uses:
        """Collect the uses in a path."""
        uses = cls(path)
        for index, op in enumerate(path):
            for name in op.reads():
                uses.reads[name].append(index)
            for name in op.writes():
                uses.writes[name].append(index)
        return uses

    def last_write(self, name: str) -> int:
        """Return the index of the last op that writes a name, -1 for an input."""
        return max(self.writes.get(name, [-1]))

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return the names that are used, by their last writer."""
        used = [name for name in dict.fromkeys(names) if name in self.reads or name in self.writes]
        return sorted(used, key=self.last_write)

    def inputs(self, block: AbstractBlock) -> set[str]:
        """Return what is read but not written, and is no state."""
        return {n for n in self.reads if n not in self.writes and not _is_state(block, n)}

    def across(self, first: int, end: int) -> set[str]:
        """Return what a segment writes for later ops, and what it reads of earlier ones."""
        segment = self.path[first:end]
        left = {n for op in segment for n in op.writes() if max(self.reads.get(n, [-1])) >= end}
        return left | {
            n for op in segment for n in op.reads() if min(self.writes.get(n, [end])) < first
        }


def _segments(uses: _Uses, checkpoints: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first index and the end of each segment of a path."""
    if len(checkpoints) == 1:
        last = uses.last_write(checkpoints[0])
        return [(0, last + 1)] if last > 0 else []
    segments: list[tuple[int, int]] = []
    for name, following in pairwise(checkpoints):
        first = min(uses.reads.get(name, [len(uses.path)]))
        last = uses.last_write(following)
        if first < last:
            segments.append((first, last + 1))
    if segments and segments[0][0] != 0:
        segments.insert(0, (0, segments[0][0]))
    return segments


def _repeatable(block: AbstractBlock, forward: Sequence[OpDesc]) -> set[int]:
    """Return the ids of ops that produce the same results when run again at the end."""
    renewed: set[str] = set()
    repeatable: set[int] = set()
    for op in reversed(forward):
        stale = renewed | {name for name in op.writes() if not _is_state(block, name)}
        is_seeded = bool(op.inputs.get("Seed"))
        is_plain = (is_seeded or not find(op.type).is_random) and "sub_block" not in op.attrs
        if is_plain and not stale.intersection(op.reads()):
            repeatable.add(id(op))
        renewed.update(op.writes())
    return repeatable


def _is_state(block: AbstractBlock, name: str) -> bool:
    var = block.lookup(name)
    return var is None or var.persistable


def _repeat(
    block: AbstractBlock, start: int, segment: Sequence[OpDesc], kept: set[str], suffix: str
) -> None:
    """Insert copies of the ops of a segment before its gradient ops; rename the latter's inputs."""
    written = {name for op in segment for name in op.writes()}
    again = {name for name in written - kept if not _is_state(block, name)}
    repeated = [op for op in segment if again.intersection(op.writes())]
    place = _first_gradient(block, start, written, again)
    if not repeated or place is None:
        return
    for op in block.ops[start:]:
        _rename(op.inputs, again, suffix)
    for offset, op in enumerate(repeated):
        _insert_copy(block, place + offset, op, again, suffix)


def _first_gradient(
    block: AbstractBlock, start: int, written: set[str], again: set[str]
) -> int | None:
    """Return the index of the first gradient op of a segment, or of the sum that it reads."""
    gradients = tuple(f"{name}@GRAD" for name in written)
    for place, op in enumerate(block.ops[start:], start):
        is_of_segment = any(name in again or name.startswith(gradients) for name in op.reads())
        if is_of_segment and op.type != "sum":
            while place > start and _is_sum_for(block.ops[place - 1], op):
                place -= 1
            return place
    return None


def _is_sum_for(op: OpDesc, reader: OpDesc) -> bool:
    return op.type == "sum" and bool(set(op.writes()).intersection(reader.reads()))


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
