"""An index of the values in a slot: those that may overlap a region, without a look at the others.

An op of n parts places n values in one slot; comparing each with each would take n² steps.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from compiler.ir.dims import Size
from compiler.ir.region import Region, end
from compiler.ir.types import TensorType

K = TypeVar("K", bound=Hashable)

_CONTIGUOUS = (0, 0)
"""The group of regions that are no rows, or rows that extend into the next pitch."""


class _Intervals:
    """Numbered intervals of integers: those that overlap another one are located by bisection."""

    def __init__(self) -> None:
        self._by_length: dict[int, list[tuple[int, int]]] = {}

    def add(self, start: int, stop: int, number: int) -> None:
        """Add an interval."""
        insort(self._by_length.setdefault((stop - start).bit_length(), []), (start, number))

    def remove(self, start: int, stop: int, number: int) -> None:
        """Remove an interval that was added."""
        starts = self._by_length[(stop - start).bit_length()]
        del starts[bisect_left(starts, (start, number))]

    def near(self, start: int, stop: int) -> Iterator[int]:
        """Yield the numbers of intervals that overlap one, or nearly do."""
        for bits, starts in self._by_length.items():
            first = bisect_left(starts, (start - (1 << bits) + 1, 0))
            for number in range(first, bisect_left(starts, (stop, 0))):
                yield starts[number][1]


class _Extent(NamedTuple):
    """The bytes from the start to the stop of a region, and of each of its rows in the pitch.

    Regions of one `group` have rows of one pitch, and overlap only if their rows do.
    """

    start: int
    stop: int
    row: tuple[int, int]
    group: tuple[int, int]


class _Group:
    """Regions of one group: their whole extents, and their rows within the pitch."""

    def __init__(self) -> None:
        self.extents = _Intervals()
        self.rows = _Intervals()


class RegionIndex(Generic[K]):
    """Values by key, in the order in which they were added, and which of them may overlap."""

    def __init__(self, values: Iterable[tuple[K, TensorType, Region]] = ()) -> None:
        self._added = 0
        self._keys: dict[int, K] = {}
        self._places: dict[K, tuple[int, _Extent | None]] = {}
        self._groups: dict[tuple[int, int], _Group] = {}
        self._symbolic: set[int] = set()
        for key, type, region in values:
            self.add(key, type, region)

    def __contains__(self, key: K) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[K]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def add(self, key: K, type: TensorType, region: Region) -> None:
        """Add a value; one that is there already moves to its new region."""
        self.discard(key)
        number, extent = self._added, _extent(type, region)
        self._added += 1
        self._keys[number] = key
        self._places[key] = number, extent
        if extent is None:
            self._symbolic.add(number)
            return
        group = self._groups.setdefault(extent.group, _Group())
        group.extents.add(extent.start, extent.stop, number)
        group.rows.add(*extent.row, number)

    def discard(self, key: K) -> None:
        """Remove a value if it is there."""
        number, extent = self._places.pop(key, (-1, None))
        self._keys.pop(number, None)
        self._symbolic.discard(number)
        if extent is not None:
            group = self._groups[extent.group]
            group.extents.remove(extent.start, extent.stop, number)
            group.rows.remove(*extent.row, number)

    def near(self, type: TensorType, region: Region) -> list[K]:
        """Return the values that may overlap a region, in the order in which they were added."""
        extent = _extent(type, region)
        if extent is None:
            return [*self._places]
        numbers = [*self._symbolic]
        for kind, group in self._groups.items():
            if kind == extent.group:
                numbers += group.rows.near(*extent.row)
            else:
                numbers += group.extents.near(extent.start, extent.stop)
        return [self._keys[number] for number in sorted(numbers)]


def _extent(type: TensorType, region: Region) -> _Extent | None:
    """Return the bytes of a region; None if they are not known."""
    sizes: tuple[Size, ...] = (region.offset, end(type, region), region.row, region.pitch)
    start, stop, row, pitch = (size if isinstance(size, int) else -1 for size in sizes)
    if min(start, stop, row, pitch) < 0:
        return None
    if not region.is_strided or start % pitch + row > pitch:
        return _Extent(start, stop, (start, stop), _CONTIGUOUS)
    block, first = divmod(start, pitch)
    return _Extent(start, stop, (first, first + row), (pitch, block))
