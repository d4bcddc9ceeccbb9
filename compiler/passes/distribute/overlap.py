"""A schedule in which communication starts as early and is waited for as late as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def overlapped(
    order: Sequence[int],
    before: Sequence[Sequence[int]],
    is_early: Callable[[int], bool],
    is_late: Callable[[int], bool],
) -> list[int]:
    """Reorder items so that early ones run as soon as their dependencies are done, and late ones
    just before their first reader.

    Items that depend on no late one come first, then the others, both in their original order:
    nothing waits for communication while there is other work. `before` has the dependencies of each
    item; `order` is a permutation of all items.
    """
    placer = _Placer(before, is_early)
    behind = placer.behind(item for item in order if is_late(item))
    for item in (item for item in order if item not in behind):
        placer.place(item)
    for item in (item for item in order if not is_late(item)):
        placer.place(item)
    for item in order:
        placer.place(item)
    return placer.result


class _Placer:
    """Places items after their dependencies, and early items directly after the last of them."""

    def __init__(self, before: Sequence[Sequence[int]], is_early: Callable[[int], bool]) -> None:
        self.before = before
        self.is_early = is_early
        self.after: list[list[int]] = [[] for _ in before]
        for item, waits in enumerate(before):
            for predecessor in waits:
                self.after[predecessor].append(item)
        self.placed = set[int]()
        self.result: list[int] = []

    def behind(self, items: Iterable[int]) -> set[int]:
        """Return the items and everything that depends on them, transitively."""
        pending, reached = list(items), set[int]()
        while pending:
            item = pending.pop()
            if item not in reached:
                reached.add(item)
                pending += self.after[item]
        return reached

    def place(self, item: int) -> None:
        """Place an item after all its dependencies, unless it is placed."""
        pending = [item]
        while pending:
            missing = [
                predecessor
                for predecessor in self.before[pending[-1]]
                if predecessor not in self.placed
            ]
            pending += reversed(missing)
            if not missing:
                self._put(pending.pop())

    def _put(self, item: int) -> None:
        pending = [item]
        while pending:
            item_ready = pending.pop()
            if item_ready not in self.placed:
                self.placed.add(item_ready)
                self.result.append(item_ready)
                pending += reversed(
                    [next for next in self.after[item_ready] if self._is_ready(next)]
                )

    def _is_ready(self, item: int) -> bool:
        return self.is_early(item) and all(
            predecessor in self.placed for predecessor in self.before[item]
        )
