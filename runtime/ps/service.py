"""What a server is given: its variables, and the functions that update them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from compiler.ir.types import Array

Feeds = Mapping[str, Array]
"""Arrays by name; the row numbers of a sparse gradient `g` are `g@ROWS`."""

ROWS = "@ROWS"
"""What follows the name of a sparse gradient in the name of its row numbers."""


@dataclass(frozen=True)
class Gradient:
    """A variable that trainers send. `trainer` is the only one that does; None where all may.

    Of a sparse one, `shape` is that of the whole table.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_sparse: bool
    trainer: int | None


@dataclass(frozen=True)
class Service:
    """A server of a job: who takes part, what lies here, and how it is updated.

    `variables` are the arrays that live here by name. With `is_synchronous`, `update` runs once a
    step on the gradients of all trainers; else it runs on each gradient as it comes, with the
    trainer that sent it. `assign` sets a variable, `count` adds to a counter of the learning-rate
    schedule, `save` writes a variable below a folder, `received` notes that a trainer has read a
    variable. `lookups` has, for the name under which trainers ask for rows, the table and by what
    row numbers are divided. `threads` answer calls, or more where the trainers need more.
    """

    endpoint: str
    number: int
    trainers: int
    is_synchronous: bool
    gradients: tuple[Gradient, ...]
    variables: Callable[[], Mapping[str, Array]]
    update: Callable[[Feeds, int], None]
    assign: Callable[[str, Array], None]
    count: Callable[[str, Array], None]
    save: Callable[[str, str], None]
    received: Callable[[str, int], None]
    lookups: Mapping[str, tuple[str, int]]
    threads: int = 0

    def gradients_of(self, trainer: int) -> list[Gradient]:
        """The gradients that a trainer sends, in the order of messages."""
        return [each for each in self.gradients if each.trainer in (None, trainer)]

    def catalogue(self, trainer: int) -> dict[str, Any]:
        """What a trainer receives first: the gradients it sends, in the order of messages."""
        sent = self.gradients_of(trainer)
        return {
            "endpoint": self.endpoint,
            "trainers": self.trainers,
            "synchronous": self.is_synchronous,
            "gradients": [[e.name, e.dtype, list(e.shape), e.is_sparse] for e in sent],
        }
