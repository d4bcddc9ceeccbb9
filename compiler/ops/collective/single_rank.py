"""The `collective` of a world of one rank, in which the interpreter runs a graph."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.types import Array


class Alone:
    """Every collective over one rank: reductions keep values, gathers return what they are given.

    The methods are those of `runtime.collective`; see there for shapes and errors.
    """

    def all_reduce(self, ring: int, name: str, op: str, array: Array) -> None:
        """Reduce one array: it keeps its values."""

    def start_all_reduce(self, ring: int, name: str, op: str, array: Array) -> None:
        """Start `all_reduce`."""

    def wait(self, ring: int, name: str) -> None:
        """Wait for what `start_all_reduce` started under a name."""

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
        """Concatenate the row numbers and values of all ranks."""
        return rows, values

    def reduce_scatter(self, ring: int, name: str, op: str, array: Array) -> Array:
        """Reduce, and return this rank's share of the rows."""
        return array

    def scatter(self, ring: int, name: str, root: int, array: Array) -> Array:
        """Return this rank's share of the root's rows."""
        return array

    def barrier(self, ring: int, name: str) -> None:
        """Wait for all ranks."""

    def rank(self, ring: int) -> int:
        """This rank's number."""
        return 0

    def size(self, ring: int) -> int:
        """How many ranks there are."""
        return 1

    def has_ring(self, ring: int) -> bool:
        """Whether there are other ranks to ask."""
        return False

    def create_id(self, name: str, rank: int, endpoints: Sequence[str]) -> None:
        """Meet at the first endpoint."""

    def init_ring(self, ring: int, id_name: str, size: int, rank: int) -> None:
        """Make a group of the ranks that met under a name."""
