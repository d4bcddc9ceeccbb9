"""Batches of a reader, distributed over the trainers of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from compiler.support.settings.paddle import PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM

__all__ = ["distributed_batch_reader"]

T = TypeVar("T")


def distributed_batch_reader(batch_reader: Callable[[], Iterator[T]]) -> Callable[[], Iterator[T]]:
    """Return a reader of one in n batches, by trainer id; an incomplete last group is dropped.

    The environment variables `PADDLE_TRAINERS_NUM` and `PADDLE_TRAINER_ID`, set by `fluid launch`,
    are n and the id. Raises ValueError if the id is not below n.
    """
    count, trainer = PADDLE_TRAINERS_NUM.read(), PADDLE_TRAINER_ID.read()
    if not 0 <= trainer < count:
        raise ValueError(f"PADDLE_TRAINER_ID is {trainer}, but PADDLE_TRAINERS_NUM is {count}")

    def read() -> Iterator[T]:
        for batches in _full_groups(batch_reader(), count):
            yield batches[trainer]

    return read


def _full_groups(batches: Iterator[T], count: int) -> Iterator[list[T]]:
    """Yield lists of `count` batches; an incomplete last list is dropped."""
    taken: list[T] = []
    for batch in batches:
        taken.append(batch)
        if len(taken) == count:
            yield taken
            taken = []
