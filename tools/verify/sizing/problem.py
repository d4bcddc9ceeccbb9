"""A graph with its inputs, and what the reference implementation computes from them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler import interpret
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import is_floating

Arrays = Mapping[str, np.ndarray]
Built = tuple[Graph, list[str]]
"""A graph and the names of its results."""

NARROWEST = 2.4e-38
"""Twice the smallest normal float32: smaller numbers count as zero, since native code rounds
denormals to zero."""


REFERENCE_SECONDS = 25
"""Seconds after which the reference is given up."""


class Refused(Exception):
    """Type inference or the reference implementation does not accept the inputs."""


class Slow(Exception):
    """The reference implementation takes too long."""


@dataclass(frozen=True)
class Problem:
    """What to compute: `build` returns a new graph at each call, `feed` and `state` are its inputs.

    Floats are widened for the oracle unless `has_bytes`: they then hold the bytes of integers.
    """

    build: Callable[[], Built]
    feed: Arrays
    state: Arrays
    has_bytes: bool = False

    def largest(self) -> int:
        """Bytes of the largest input."""
        return max((a.nbytes for a in (*self.feed.values(), *self.state.values())), default=0)


@dataclass(frozen=True)
class Case:
    """A named problem; `make(seed)` draws its inputs, and raises Refused if there are none."""

    name: str
    make: Callable[[int], Problem]


def reference(problem: Problem, wide: bool = True, noise: float = 0.0, seed: int = 0) -> Arrays:
    """What the interpreter computes, by name; in float64, or as the types say.

    With `noise`, each float of the inputs is multiplied by 1 plus or minus up to so much. The state
    that is left has the name of its variable and " afterwards". Raises Slow.
    """
    graph, names = problem.build()
    wide = wide and not problem.has_bytes
    rng = np.random.default_rng(seed)

    def input_of(array: np.ndarray) -> np.ndarray:
        if not is_floating(array.dtype) or problem.has_bytes:
            return array.copy()
        changed = array.astype(np.float64) if wide else array.copy()
        return changed * (1 + noise * rng.uniform(-1, 1, array.shape)) if noise else changed

    feed = {name: input_of(array) for name, array in problem.feed.items()}
    state = {name: input_of(array) for name, array in problem.state.items()}
    with np.errstate(all="ignore"), within(REFERENCE_SECONDS):
        results = interpret.run(graph, feed, state, _widened if wide else None)
    return named(names, results, state)


def named(names: list[str], results: list[np.ndarray], state: Arrays) -> Arrays:
    """Results and state in one dict."""
    arrays = {name: np.asarray(a) for name, a in zip(names, results, strict=True)}
    return arrays | {f"{name} afterwards": np.array(a) for name, a in state.items()}


def _widened(op: Op, results: list[tuple[Var, np.ndarray]]) -> list[tuple[Var, np.ndarray]]:
    return [(var, a.astype(np.float64) if is_floating(a.dtype) else a) for var, a in results]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise Slow if a block takes longer; in the main thread of a process only."""

    def late(*_: Any) -> None:
        raise Slow(f"the reference takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
