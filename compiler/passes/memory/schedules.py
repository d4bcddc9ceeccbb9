"""Schedules of kernels with few live bytes, and their peaks.

Each heuristic takes about n · log n; which one suits a graph is not known in advance, so
`compiler.passes.memory.schedule` tries several and compares their peaks. In a peak, a value written
in place of a dying one takes no additional memory, as in `reuse_memory`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from compiler.ir.analysis.liveness import InPlaceRules, held, kernels, lives
from compiler.ir.dims import evaluate
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import TensorType

Order = list[int]
"""Indices of kernels; the graph's original order is ascending."""


class Kernels:
    """The kernels of a graph by index: their dependencies, and the memory each writes and reads.

    Memory is indexed too: a var, or all versions that overwrite each other. `uses` counts the
    kernels that read it; results have one additional use. Unknown sizes are `typical`.
    """

    def __init__(self, g: Graph, typical: int) -> None:
        self.graph = g
        self.steps = kernels(g)
        number = {op: index for index, ops in enumerate(self.steps) for op in ops}
        self.before = [_dependencies(g, ops, number, index) for index, ops in enumerate(self.steps)]
        self.after: list[list[int]] = [[] for _ in self.steps]
        for index, waits in enumerate(self.before):
            for predecessor in waits:
                self.after[predecessor].append(index)
        stored = lives(g)
        memory_index = {var: i for i, var in enumerate(v for v in stored if v.storage is v)}
        index_of = {var: memory_index[var.storage] for var in stored if var.storage in memory_index}
        self.types = [var.type for var in memory_index]
        self.made = [
            _memory_of((v for op in ops for v in op.writes()), index_of) for ops in self.steps
        ]
        self.reads = [
            _memory_of((v for op in ops for v in held(op)), index_of) for ops in self.steps
        ]
        for writes, reads in zip(self.made, self.reads, strict=True):
            writes[:] = [memory for memory in writes if memory not in reads]
            reads[:] = [memory for memory in reads if memory not in writes]
        self.uses = [0] * len(memory_index)
        for memory in (memory for reads in self.reads for memory in reads):
            self.uses[memory] += 1
        for var in (var for var in g.results if var in index_of):
            self.uses[index_of[var]] += 1
        self.in_place = self._in_place_candidates(index_of)
        self.resize(typical)

    def resize(self, typical: int) -> None:
        """Recompute sizes with another value for unknown sizes."""
        self.sizes = [nbytes(type, typical) for type in self.types]

    def _in_place_candidates(self, index_of: dict[Var, int]) -> dict[tuple[int, int], list[int]]:
        """Return, for each kernel and memory it writes, the memory that it could overwrite in
        place.
        """
        candidates: dict[tuple[int, int], list[int]] = {}
        for index, ops in enumerate(self.steps):
            here = frozenset(self.made[index])
            written = [v for op in ops for v in op.writes() if index_of.get(v) in here]
            reads = dict.fromkeys(v for op in ops for v in op.needs_data() if v in index_of)
            rules = InPlaceRules(ops, index_of)
            for new in written:
                same = [old for old in reads if old.type.nbytes == new.type.nbytes]
                fits = [index_of[old] for old in same if rules.allow(old, new)]
                if fits:
                    candidates[index, index_of[new]] = fits
        return candidates

    def ops(self, order: Order) -> list[Op]:
        """Return the ops of a schedule."""
        return [op for index in order for op in self.steps[index]]

    def peak(self, order: Order) -> int:
        """Return the peak live bytes."""
        left, owed = list(self.uses), list(self.sizes)
        peak = live = 0
        for index in order:
            for new in self.made[index]:
                olds = self.in_place.get((index, new), ())
                old = next((memory for memory in olds if left[memory] == 1 and owed[memory]), None)
                if old is None:
                    live += self.sizes[new]
                else:
                    owed[old] = 0
            peak = max(peak, live)
            live -= sum(owed[memory] for memory in self._dead_after(index, left))
        return peak

    def _dead_after(self, index: int, left: list[int]) -> list[int]:
        """Return the memory whose last reader is this kernel."""
        for memory in self.reads[index]:
            left[memory] -= 1
        return [memory for memory in (*self.reads[index], *self.made[index]) if not left[memory]]

    # ---- schedules ----

    def original(self) -> Order:
        """Return the original order."""
        return list(range(len(self.steps)))

    def greedy(self) -> Order:
        """Return the schedule that always takes the ready kernel that allocates least and frees
        most.
        """
        left, readers = list(self.uses), _readers_by_memory(self.reads, len(self.sizes))

        def cost(index: int) -> int:
            freed = sum(self.sizes[memory] for memory in self.reads[index] if left[memory] == 1)
            return sum(self.sizes[memory] for memory in self.made[index]) - freed

        def done(index: int) -> Iterable[int]:
            self._dead_after(index, left)
            last = (memory for memory in self.reads[index] if left[memory] == 1)
            return [reader for memory in last for reader in readers[memory]]

        return _by_cost(self.before, self.after, cost, done)

    def backward(self) -> Order:
        """Return the schedule built from the end: last, the kernel that requires the least live
        memory.
        """
        readers, makers = _readers_by_memory(self.reads, len(self.sizes)), self.made
        alive = [False] * len(self.sizes)

        def cost(index: int) -> int:
            needed = sum(self.sizes[memory] for memory in self.reads[index] if not alive[memory])
            return needed - sum(self.sizes[memory] for memory in makers[index])

        def done(index: int) -> Iterable[int]:
            new = [memory for memory in self.reads[index] if not alive[memory]]
            for memory in new:
                alive[memory] = True
            return [reader for memory in new for reader in readers[memory]]

        return _by_cost(self.after, self.before, cost, done, sign=-1)[::-1]

    def deferred(self, order: Order) -> Order:
        """Return the order with allocating kernels deferred until needed, and freeing ones
        early.
        """
        placed, left, result = set[int](), list(self.uses), Order()
        waits = [len(predecessors) for predecessors in self.before]

        def takes(index: int) -> bool:
            freed = sum(self.sizes[memory] for memory in self.reads[index] if left[memory] == 1)
            return sum(self.sizes[memory] for memory in self.made[index]) > freed

        def schedule(first: int) -> None:
            pending = [first]
            while pending:
                index = pending[-1]
                missing = [
                    predecessor for predecessor in self.before[index] if predecessor not in placed
                ]
                pending += reversed(missing)
                if missing:
                    continue
                pending.pop()
                if index not in placed:
                    placed.add(index)
                    result.append(index)
                    self._dead_after(index, left)
                    for follower in self.after[index]:
                        waits[follower] -= 1
                    pending += reversed([w for w in self.after[index] if ready(w)])

        def ready(index: int) -> bool:
            return index not in placed and not waits[index] and not takes(index)

        for index in order:
            if index not in placed and not takes(index):
                schedule(index)
        for index in order:
            if index not in placed:
                schedule(index)
        return result


def nbytes(type: TensorType, typical: int) -> int:
    """Return the bytes of a type with `typical` unknown sizes; an array counts as one tensor."""
    size = type.numel * type.dtype.itemsize if type.is_array else type.nbytes
    return size if isinstance(size, int) else evaluate(size, dict.fromkeys(type.names, typical))


def _dependencies(g: Graph, ops: Sequence[Op], number: dict[Op, int], own: int) -> list[int]:
    """Return the kernels that the kernel of these ops depends on."""
    dependencies = dict.fromkeys(
        number[predecessor] for op in ops for predecessor in g.predecessors(op)
    )
    dependencies.pop(own, None)
    return list(dependencies)


def _memory_of(vars: Iterable[Var], index_of: dict[Var, int]) -> list[int]:
    return list(dict.fromkeys(index_of[var] for var in vars if var in index_of))


def _readers_by_memory(reads: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Return the kernels that read each memory."""
    readers: list[list[int]] = [[] for _ in range(count)]
    for index, memories in enumerate(reads):
        for memory in memories:
            readers[memory].append(index)
    return readers


def _by_cost(
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
    cost: Callable[[int], int],
    done: Callable[[int], Iterable[int]],
    sign: int = 1,
) -> Order:
    """List scheduling: take the cheapest ready kernel, ties by index.

    `done` receives the scheduled kernel, and returns those whose cost may have decreased.
    """
    waits = [len(predecessors) for predecessors in before]
    ready = [(cost(i), sign * i) for i, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    taken, order = set[int](), Order()
    while ready:
        paid, key = heapq.heappop(ready)
        index = key * sign
        if index in taken or paid != cost(index):
            continue
        taken.add(index)
        order.append(index)
        changed = [
            follower for follower in done(index) if not waits[follower] and follower not in taken
        ]
        for follower in after[index]:
            waits[follower] -= 1
        changed += [follower for follower in after[index] if not waits[follower]]
        for kernel in changed:
            heapq.heappush(ready, (cost(kernel), kernel * sign))
    return order
