"""Group: moves arrays between the ranks of a ring, by torch's engines or by shared memory."""

from __future__ import annotations

from typing import Any, Protocol


class Work(Protocol):
    """A collective that was started."""

    def done(self) -> bool:
        """Wait one slice and return whether it is complete. Raises RuntimeError if it failed."""
        ...


class Group(Protocol):
    """Starts collectives of the ranks of a ring; see `Rings` for their semantics.

    Values are contiguous arrays or tensors in the memory that the group moves. All ranks start the
    same collectives in the same order.
    """

    def all_reduce(self, value: Any, operation: str) -> Work:
        """Reduce in place on every rank."""
        ...

    def reduce(self, value: Any, operation: str, root: int) -> Work:
        """Reduce in place on the root; other ranks keep their values."""
        ...

    def broadcast(self, value: Any, root: int) -> Work:
        """Copy the root's values to every rank."""
        ...

    def all_gather(self, result: Any, value: Any) -> Work:
        """Copy the values of all ranks, in rank order, into `result`."""
        ...

    def reduce_scatter(self, result: Any, value: Any, operation: str) -> Work:
        """Reduce, and store this rank's part of axis 0 in `result`."""
        ...

    def scatter(self, result: Any, value: Any, root: int) -> Work:
        """Copy this rank's part of axis 0 of the root's values into `result`."""
        ...

    def close(self) -> None:
        """Free what the group uses; no work may be in progress."""
        ...

    def abandon(self) -> None:
        """Leave the group as it is until the process ends: its work cannot be completed."""
        ...
