"""The service definition of a server: its variables, and the functions that update them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass

Feeds = Mapping[str, Array]
"""Arrays by name; the row numbers of a sparse gradient `g` are `g@ROWS`."""

ROWS = "@ROWS"
"""Suffix of the name of a sparse gradient in the name of its row numbers."""


@dataclass(frozen=True)
class Gradient:
    """A variable that trainers send. `trainer` is the only one that does; None if all may.

    For a sparse one, `shape` is that of the whole table.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_sparse: bool
    trainer: int | None


@dataclass(frozen=True)
class Service:
    """A server of a job: the participants, the variables stored here, and their update functions.

    `variables` are the arrays stored here by name. With `is_synchronous`, `update` runs once a step
    on the gradients of all trainers; else it runs on each gradient as it arrives, with the trainer
    that sent it. `assign` sets a variable, `count` adds to a counter of the learning-rate schedule,
    `save` writes a variable into a folder, `received` records that a trainer has read a variable.
    `lookups` maps the name under which trainers request rows to the table and the divisor of row
    numbers. `threads` is the number that answer calls, more if the trainers require it. `counters`
    are the variables that a trainer may add to, each with that trainer.
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
    counters: Mapping[str, int] = field(default_factory=dict[str, int])

    def gradients_of(self, trainer: int) -> list[Gradient]:
        """The gradients that a trainer sends, in message order."""
        return [gradient for gradient in self.gradients if gradient.trainer in (None, trainer)]

    def catalogue(self, trainer: int) -> dict[str, Any]:
        """The first message to a trainer: the gradients it must send, in message order."""
        sent = self.gradients_of(trainer)
        return {
            "endpoint": self.endpoint,
            "trainers": self.trainers,
            "synchronous": self.is_synchronous,
            "gradients": [[e.name, e.dtype, list(e.shape), e.is_sparse] for e in sent],
        }
