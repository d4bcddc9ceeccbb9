"""Batches of a reader divided among the trainers of a job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["distributed_batch_reader"]

Reader = Callable[[], Iterator[Any]]


def distributed_batch_reader(batch_reader: Reader) -> Reader:
    """A reader of one batch in every n, by this trainer's id; an incomplete last n is left out.

    `PADDLE_TRAINERS_NUM` says how many trainers there are, `PADDLE_TRAINER_ID` which one this is,
    as `fluid launch` sets them. Raises ValueError where the id is not below the number.
    """
    count = int(os.environ.get("PADDLE_TRAINERS_NUM", 1))
    trainer = int(os.environ.get("PADDLE_TRAINER_ID", 0))
    if not 0 <= trainer < count:
        raise ValueError(f"PADDLE_TRAINER_ID is {trainer}, but PADDLE_TRAINERS_NUM is {count}")

    def read() -> Iterator[Any]:
        for batches in _whole(batch_reader(), count):
            yield batches[trainer]

    return read


def _whole(batches: Iterator[Any], count: int) -> Iterator[list[Any]]:
    """Lists of `count` batches; what is left at the end is dropped."""
    taken: list[Any] = []
    for batch in batches:
        taken.append(batch)
        if len(taken) == count:
            yield taken
            taken = []
