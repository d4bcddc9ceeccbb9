"""An order in which communication starts as soon as it can and is waited for as late as it may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def overlapped(
    order: Sequence[int],
    before: Sequence[Sequence[int]],
    is_early: Callable[[int], bool],
    is_late: Callable[[int], bool],
) -> list[int]:
    """An order changed so that early items run once all is there that they wait for, and late ones
    just before the first item that waits for them.

    Items that wait for no late one come first, then the others, both as they were: nobody waits
    for communication while there is anything else to do. `before` has, for each item, those it
    waits for; `order` has every item once.
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
    """Places items behind what they wait for, and early items behind the last of that."""

    def __init__(self, before: Sequence[Sequence[int]], is_early: Callable[[int], bool]) -> None:
        self.before = before
        self.is_early = is_early
        self.after: list[list[int]] = [[] for _ in before]
        for item, waits in enumerate(before):
            for each in waits:
                self.after[each].append(item)
        self.placed = set[int]()
        self.result: list[int] = []

    def behind(self, items: Iterable[int]) -> set[int]:
        """Items, and all that wait for them, directly or not."""
        pending, found = list(items), set[int]()
        while pending:
            item = pending.pop()
            if item not in found:
                found.add(item)
                pending += self.after[item]
        return found

    def place(self, item: int) -> None:
        """Place an item, if it is not, behind all it waits for."""
        pending = [item]
        while pending:
            missing = [each for each in self.before[pending[-1]] if each not in self.placed]
            pending += reversed(missing)
            if not missing:
                self._put(pending.pop())

    def _put(self, item: int) -> None:
        pending = [item]
        while pending:
            each = pending.pop()
            if each not in self.placed:
                self.placed.add(each)
                self.result.append(each)
                pending += reversed([next for next in self.after[each] if self._is_ready(next)])

    def _is_ready(self, item: int) -> bool:
        return self.is_early(item) and all(each in self.placed for each in self.before[item])
