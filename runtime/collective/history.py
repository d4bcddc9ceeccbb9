"""History: checksums of all calls on a ring so far, by which ranks detect that they differ.

Two all-reduces of one shape may be swapped on one rank, when their order depends on data, after all
ranks have seen both: no call is new, and the sums are garbage. So every call is added to a
checksum, records contain it with the number of calls, and a rank that reads one compares it with
its own checksum for that number.
"""

from __future__ import annotations

from zlib import crc32

KEPT = 1 << 12
"""Calls of a ring whose checksums are kept; between heartbeats ranks seldom differ by more."""


class History:
    """The checksums after each of the last calls of one ring; the first `agreed` match on all
    ranks.
    """

    def __init__(self) -> None:
        self.count = 0
        self.agreed = 0
        self._checksum = 0
        self._kept: list[tuple[int, int, str]] = [(-1, 0, "")] * KEPT

    def add(self, call: str) -> tuple[int, int]:
        """Add a call; return the number of calls and their checksum."""
        self.count += 1
        self._checksum = crc32(call.encode(), self._checksum)
        self._kept[self.count % KEPT] = self.count, self._checksum, call
        return self.count, self._checksum

    def call(self, count: int) -> str:
        """Return the call with this number; "" if it is no longer kept."""
        number, _, call = self._kept[count % KEPT]
        return call if number == count else ""

    def differs(self, count: int, checksum: int) -> bool:
        """Whether another rank's first `count` calls differ from these; False if not known.

        >>> mine, other = History(), History()
        >>> [mine.differs(*other.add(call)) for call in "ab"]
        [False, False]
        >>> _ = mine.add("b"), mine.add("a")
        >>> mine.differs(*other.add("c")), mine.differs(2, other._kept[2][1])
        (False, True)
        """
        number, own, _ = self._kept[count % KEPT]
        if number != count:
            return False
        if own == checksum:
            self.agreed = max(self.agreed, count)
        return own != checksum
