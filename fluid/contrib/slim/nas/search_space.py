"""`SearchSpace`: which networks there are, for subclasses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid.framework import Program

__all__ = ["SearchSpace"]


class SearchSpace:
    """Networks by tokens; each method raises NotImplementedError unless overridden."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take any arguments."""

    def init_tokens(self) -> list[int]:
        """Return the tokens that a search begins with."""
        raise NotImplementedError("Abstract method.")

    def range_table(self) -> list[int]:
        """Return the number of values of each token."""
        raise NotImplementedError("Abstract method.")

    def create_net(self, tokens: Sequence[int]) -> tuple[Any, ...]:
        """Return startup, training and test programs, and metrics and readers of the last two."""
        raise NotImplementedError("Abstract method.")

    def get_model_latency(self, program: Program) -> float:
        """Return the latency of a program."""
        raise NotImplementedError("Abstract method.")
