"""Routes: whether a run of a program is one compiled step, decided once per version of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.support.per_version import PerVersion
from fluid import parameter_server
from fluid.framework import Program
from fluid.running.half_precision_weights import changes_state

__all__ = ["Route", "Routes"]

Split = Callable[[Program], object]
"""Returns what else a program needs to run, something false if nothing."""


@dataclass(frozen=True)
class Route:
    """How a version of a program runs.

    `serves`: it is that of a parameter server. `is_plain`: a run is one compiled step, without file
    ops, resized state or branches to choose, and it has ops. `changes`: it writes state.
    """

    serves: bool
    is_plain: bool
    changes: bool


class Routes:
    """The routes of programs; `splits` find what makes a run more than one step."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self._splits = splits
        self._routes = PerVersion(self._route)

    def of(self, program: Program) -> Route:
        """The route of the current version of a program."""
        return self._routes[program]

    def _route(self, program: Program) -> Route:
        serves = parameter_server.serves(program)
        is_plain = not serves and bool(program.blocks[0].ops)
        is_plain = is_plain and not any(split(program) for split in self._splits)
        return Route(serves, is_plain, changes_state(program))
