"""Arrays and tensors on their way between ranks: staged through the host if no group moves them
directly.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from compiler.ir.types import Array
from runtime.collective.engine import torch_module
from runtime.collective.groups.elements import expect_contiguous, is_tensor
from runtime.collective.hierarchy import copy_stage, hierarchical_stages
from runtime.collective.packed_rows import RowMessages
from runtime.collective.ring import Ring, Stage, engine_tensor
from runtime.collective.work import WorkRunner


class TensorMover:
    """Moves arrays and tensors by the groups of rings."""

    def __init__(self, runner: WorkRunner) -> None:
        self._runner = runner

    def all_reduce_stages(self, ring: Ring, value: Any, op: str) -> list[Stage]:
        """The stages of an all-reduce of an array or tensor, in place."""
        group, moved = self._engine(ring, value)
        stages: list[Stage] = [lambda: group.all_reduce(moved, op)]
        if ring.is_hierarchical and group is ring.group:
            stages = hierarchical_stages(ring, moved, op)
        if moved is not value:
            stages.append(copy_stage(value, moved))
        return stages

    def _engine(self, ring: Ring, value: Any) -> tuple[Any, Any]:
        """Return the group that moves a value, and what it moves, a copy if it is staged."""
        if not (is_tensor(value) and value.is_cuda):
            return ring.group, value
        with self._runner.watched(ring, ring.member.record.call) as check:
            return engine_tensor(ring, value, check)

    @contextmanager
    def moved(
        self, ring: Ring, value: Any, *, copies_back: bool = False
    ) -> Generator[tuple[Any, Any]]:
        """Yield the group that moves a value, and what it moves, copied back if it is staged."""
        group, moved = self._engine(ring, value)
        yield group, moved
        if copies_back and moved is not value:
            value.copy_(moved)

    @contextmanager
    def parted(self, ring: Ring, array: Any, result: Any) -> Generator[tuple[Any, Any, Any]]:
        """Yield the group and what it moves of `array` and of this rank's `result`."""
        expect_contiguous(array)
        with (
            self.moved(ring, array) as (group, moved),
            self.moved(ring, result, copies_back=True) as (_, part),
        ):
            yield group, moved, part

    def gather(self, ring: Ring, result: Any, array: Any) -> None:
        """Concatenate the arrays of all ranks, of equal shapes, in `result`."""
        if ring.size == 1:
            expect_contiguous(array)
            result.reshape(-1)[...] = array.reshape(-1)
            return
        with self.parted(ring, array, result) as (group, moved, joined):
            self._runner.run(ring, lambda: group.all_gather(joined, moved), of_all=True)

    def gather_rows(self, ring: Ring, name: str, rows: Array, values: Array) -> tuple[Array, Array]:
        """Concatenate rows and values of all ranks, by messages with room for those so far.

        The first message, and one of more rows, only agrees on the room of the next.
        """
        while True:
            room = ring.row_capacities.get(name, 0)
            format = RowMessages(room, values.dtype, values.shape[1:])
            messages = np.empty(ring.size * format.nbytes, np.uint8)
            self.gather(ring, messages, format.packed(rows, values))
            most = max(format.counts(messages))
            if most <= room:
                return format.unpacked(messages)
            ring.row_capacities[name] = most

    def gather_padded(self, ring: Ring, array: Any, counts: list[int]) -> Any:
        """Concatenate the rows of all ranks: padded to the longest, so that all parts have one
        size.
        """
        longest, rest = max(counts), tuple(array.shape[1:])
        padded = empty_like(array, (longest, *rest))
        padded[: len(array)] = array
        padded[len(array) :] = 0
        joined = empty_like(array, (ring.size * longest, *rest))
        self.gather(ring, joined, padded)
        parts = [joined[i * longest : i * longest + count] for i, count in enumerate(counts)]
        return torch_module().cat(parts) if is_tensor(array) else np.concatenate(parts)


def empty_like(array: Any, shape: tuple[int, ...]) -> Any:
    """An array or tensor of the same kind, element type and device."""
    return array.new_empty(shape) if is_tensor(array) else np.empty(shape, array.dtype)
