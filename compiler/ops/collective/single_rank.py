"""The `collective` of a single rank, which the interpreter uses to run a graph."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.types import Array


class SingleRank:
    """Collectives over one rank: reductions keep values, gathers return their input.

    The methods are those of `runtime.collective`; see there for shapes and errors.
    """

    def all_reduce(self, ring: int, name: str, op: str, array: Array) -> None:
        """Reduce one array in place: its values are unchanged."""

    def start_all_reduce(self, ring: int, name: str, op: str, array: Array) -> None:
        """Start `all_reduce`."""

    def wait(self, ring: int, name: str) -> None:
        """Wait for a `start_all_reduce` by name."""

    def reduce(self, ring: int, name: str, op: str, root: int, array: Array) -> None:
        """Reduce one array onto the root, which is this rank."""

    def broadcast(self, ring: int, name: str, root: int, array: Array) -> None:
        """Broadcast from the root, which is this rank."""

    def all_gather(self, ring: int, name: str, array: Array) -> Array:
        """Concatenate the arrays of all ranks along axis 0."""
        return array

    def all_gather_rows(
        self, ring: int, name: str, rows: Array, values: Array
    ) -> tuple[Array, Array]:
        """Concatenate the row indices and values of all ranks."""
        return rows, values

    def reduce_scatter(self, ring: int, name: str, op: str, array: Array) -> Array:
        """Reduce, and return this rank's rows."""
        return array

    def scatter(self, ring: int, name: str, root: int, array: Array) -> Array:
        """Return this rank's rows of the root's array."""
        return array

    def barrier(self, ring: int, name: str) -> None:
        """Wait for all ranks."""

    def rank(self, ring: int) -> int:
        """Return this rank's index."""
        return 0

    def size(self, ring: int) -> int:
        """Return the number of ranks."""
        return 1

    def has_ring(self, ring: int) -> bool:
        """Return whether the ring has other ranks."""
        return False

    def create_id(self, name: str, rank: int, endpoints: Sequence[str]) -> None:
        """Rendezvous at the first endpoint."""

    def init_ring(self, ring: int, id_name: str, size: int, rank: int) -> None:
        """Create a group of the ranks of a rendezvous."""
