"""Rings: the collectives that the code of a module calls, under the global name `collective`.

A ring is a numbered group of ranks. Arrays are C-contiguous NumPy arrays or contiguous tensors.
If a rank fails in any way, the others raise an error that names it, within the deadline.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from runtime.collective.elements import (
    as_bytes,
    describe,
    element_name,
    expect_operation,
    is_tensor,
    reducible,
    tensor_of,
)
from runtime.collective.engine import torch_module
from runtime.collective.hierarchy import copy_stage, hierarchical_stages
from runtime.collective.ring import Pending, Ring, Stage, engine_tensor
from runtime.collective.table import RingTable
from runtime.errors import CollectiveError


class Rings(RingTable):
    """The rings of one process and their collectives.

    Every method that waits raises RankError if another rank ended, stopped or stalled,
    ScheduleError if ranks issue different collectives, and CollectiveError for other errors of the
    engine. After an error these rings can no longer be used.
    """

    def all_reduce(self, ring: int, name: str, op: str, array: Any) -> None:
        """Reduce `array` over all ranks, in place: `op` is `sum`, `max`, `min` or `prod`."""
        self.start_all_reduce(ring, name, op, array)
        self.wait(ring, name)

    def start_all_reduce(self, ring: int, name: str, op: str, array: Any) -> None:
        """Start an `all_reduce`; `array` must not be accessed until `wait` was called."""
        expect_operation(op)
        found = self._issue(ring, "all_reduce", name, f"{op}, {describe(array)}")
        if name in found.pending:
            raise CollectiveError(f"all_reduce of {name!r} on ring {ring} is already in progress")
        tensor = tensor_of(array, writes=True)
        what = found.member.record.call
        stages = self._all_reduce_stages(found, tensor, op) if found.size > 1 else []
        first = self._begin(found, what, stages.pop(0)) if stages else None
        found.pending[name] = Pending(what, first, stages, found.member.record.count(ring))

    def wait(self, ring: int, name: str) -> None:
        """Wait for the `all_reduce` that was started under this name."""
        found = self._ring(ring)
        pending = found.pending.pop(name, None)
        if pending is None:
            raise CollectiveError(f"no all_reduce of {name!r} was started on ring {ring}")
        self._finish(found, pending)

    def reduce(self, ring: int, name: str, op: str, root: int, array: Any) -> None:
        """Reduce to the rank `root`, in place there; other ranks keep their values."""
        expect_operation(op)
        found = self._issue(ring, "reduce", name, f"{op}, root {root}, {describe(array)}")
        is_root = _expect_root(found, root)
        tensor = tensor_of(array, writes=is_root)
        with self._moved(found, tensor, copies_back=is_root) as (group, moved):
            cast, operation, is_copy = reducible(moved, op)
            cast = cast if is_root or is_copy else cast.clone()
            self._run(found, lambda: group.reduce(cast, operation, root))
            if is_root and is_copy:
                moved.copy_(cast)

    def broadcast(self, ring: int, name: str, root: int, array: Any) -> None:
        """Copy the values of the rank `root` to all ranks, in place."""
        found = self._issue(ring, "broadcast", name, f"root {root}, {describe(array)}")
        is_root = _expect_root(found, root)
        tensor = tensor_of(array, writes=not is_root)
        with self._moved(found, tensor, copies_back=not is_root) as (group, moved):
            self._run(found, lambda: group.broadcast(as_bytes(moved), root))

    def all_gather(self, ring: int, name: str, array: Any) -> Any:
        """The arrays of all ranks in rank order, concatenated along axis 0: [size · n, ...]."""
        found = self._issue(ring, "all_gather", name, describe(array))
        rows, rest = (array.shape[0], tuple(array.shape[1:])) if array.ndim else (1, ())
        result = _empty_like(array, (found.size * rows, *rest))
        self._gather(found, result, array)
        return result

    def all_gather_rows(self, ring: int, name: str, rows: Any, values: Any) -> tuple[Any, Any]:
        """The rows (int64 [n]) and values ([n, ...]) of all ranks, in rank order; n may differ."""
        row = f"{element_name(values)}[*, {', '.join(map(str, values.shape[1:]))}]"
        found = self._issue(ring, "all_gather_rows", name, f"{element_name(rows)}, {row}")
        mine = np.array([len(rows)], "int64")
        counts = np.empty(found.size, "int64")
        self._gather(found, counts, mine)
        parts = [self._gather_padded(found, each, counts.tolist()) for each in (rows, values)]
        return parts[0], parts[1]

    def reduce_scatter(self, ring: int, name: str, op: str, array: Any) -> Any:
        """Reduce, and return this rank's part of axis 0: [n / size, ...].

        Raises ValueError if axis 0 is not a multiple of the ring's size.
        """
        expect_operation(op)
        found = self._issue(ring, "reduce_scatter", name, f"{op}, {describe(array)}")
        result = _empty_like(array, _part_shape(found, array, name))
        if found.size == 1:
            result[...] = array
            return result
        with self._parted(found, array, result) as (group, moved, kept):
            cast, operation, is_copy = reducible(moved.reshape(-1), op)
            target = cast.new_empty(kept.numel()) if is_copy else reducible(kept.reshape(-1), op)[0]
            self._run(found, lambda: group.reduce_scatter(target, cast, operation))
            if is_copy:
                kept.reshape(-1).copy_(target)
        return result

    def scatter(self, ring: int, name: str, root: int, array: Any) -> Any:
        """Return this rank's part of axis 0 of the root's array: [n / size, ...].

        Every rank passes an array of this shape; only the root's values are read.
        """
        found = self._issue(ring, "scatter", name, f"root {root}, {describe(array)}")
        is_root = _expect_root(found, root)
        result = _empty_like(array, _part_shape(found, array, name))
        if found.size == 1:
            result[...] = array
            return result
        with self._parted(found, array, result) as (group, moved, kept):
            parts: list[Any] = list(as_bytes(moved).chunk(found.size)) if is_root else []
            self._run(found, lambda: group.scatter(as_bytes(kept), parts, root))
        return result

    def barrier(self, ring: int, name: str) -> None:
        """Wait until every rank has called this."""
        found = self._issue(ring, "barrier", name, "")
        mark = tensor_of(np.zeros(1, "int32"), writes=True)
        with self._moved(found, mark) as (group, moved):
            self._run(found, lambda: group.all_reduce(moved, "sum"), of_all=True)

    # Tensors and engines

    def _all_reduce_stages(self, ring: Ring, tensor: Any, op: str) -> list[Stage]:
        group, moved = self._engine(ring, tensor)
        cast, operation, is_copy = reducible(moved, op)
        stages: list[Stage] = [lambda: group.all_reduce(cast, operation)]
        if ring.is_hierarchical and not moved.is_cuda:
            stages = hierarchical_stages(ring, cast, operation)
        if is_copy:
            stages.append(copy_stage(moved, cast))
        if moved is not tensor:
            stages.append(copy_stage(tensor, moved))
        return stages

    def _engine(self, ring: Ring, tensor: Any) -> tuple[Any, Any]:
        """Return the group that moves a tensor, and the tensor it moves, a copy if it is staged."""
        if not tensor.is_cuda:
            return ring.group, tensor
        with self._watched(ring, ring.member.record.call) as look:
            return engine_tensor(ring, tensor, look)

    @contextmanager
    def _moved(
        self, ring: Ring, tensor: Any, *, copies_back: bool = False
    ) -> Generator[tuple[Any, Any]]:
        """Yield the group that moves a tensor, and the tensor it moves, copied back if it is
        staged.
        """
        group, moved = self._engine(ring, tensor)
        yield group, moved
        if copies_back and moved is not tensor:
            tensor.copy_(moved)

    @contextmanager
    def _parted(self, ring: Ring, array: Any, result: Any) -> Generator[tuple[Any, Any, Any]]:
        """Yield the group and the tensors it moves: that of `array` and that of this rank's
        `result`.
        """
        source, part = tensor_of(array, writes=False), tensor_of(result, writes=True)
        with (
            self._moved(ring, source) as (group, moved),
            self._moved(ring, part, copies_back=True) as (_, kept),
        ):
            yield group, moved, kept

    def _gather(self, ring: Ring, result: Any, array: Any) -> None:
        """Concatenate the arrays of all ranks, of equal shapes, in `result`."""
        if ring.size == 1:
            source, whole = tensor_of(array, writes=False), tensor_of(result, writes=True)
            whole.reshape(-1).copy_(source.reshape(-1))
            return
        with self._parted(ring, array, result) as (group, moved, joined):
            self._run(
                ring, lambda: group.all_gather(as_bytes(joined), as_bytes(moved)), of_all=True
            )

    def _gather_padded(self, ring: Ring, array: Any, counts: list[int]) -> Any:
        """Concatenate the rows of all ranks: padded to the longest, so that all parts have one
        size.
        """
        longest, rest = max(counts), tuple(array.shape[1:])
        padded = _empty_like(array, (longest, *rest))
        padded[: len(array)] = array
        padded[len(array) :] = 0
        joined = _empty_like(array, (ring.size * longest, *rest))
        self._gather(ring, joined, padded)
        parts = [joined[i * longest : i * longest + count] for i, count in enumerate(counts)]
        return torch_module().cat(parts) if is_tensor(array) else np.concatenate(parts)


def _empty_like(array: Any, shape: tuple[int, ...]) -> Any:
    """An array or tensor of the same kind, element type and device."""
    return array.new_empty(shape) if is_tensor(array) else np.empty(shape, array.dtype)


def _part_shape(ring: Ring, array: Any, name: str) -> tuple[int, ...]:
    """The shape of one rank's part of axis 0; ValueError if axis 0 is not divisible."""
    rows = int(array.shape[0]) if array.ndim else 0
    if not array.ndim or rows % ring.size:
        raise ValueError(
            f"{name!r} of shape {tuple(array.shape)} cannot be divided among {ring.size} ranks: "
            "axis 0 must be a multiple of it"
        )
    return (rows // ring.size, *array.shape[1:])


def _expect_root(ring: Ring, root: int) -> bool:
    """Return whether this rank is the root; ValueError if the ring has no such rank."""
    if not 0 <= root < ring.size:
        raise ValueError(f"the root must be from 0 to {ring.size - 1}, but it is {root}")
    return ring.rank == root
