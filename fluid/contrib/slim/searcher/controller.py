"""Controllers: they propose tokens, lists of numbers that stand for networks, and learn rewards."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["EvolutionaryController", "SAController", "Tokens"]

Tokens = list[int]
Constraint = Callable[[Tokens], bool]

_logger = logging.getLogger(__name__)


class EvolutionaryController:
    """A controller, for subclasses: each method raises NotImplementedError."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Take any arguments."""

    def update(self, tokens: Tokens, reward: float) -> None:
        """Learn the reward of tokens."""
        raise NotImplementedError("Abstract method.")

    def reset(self, range_table: Sequence[int], constrain_func: Constraint | None = None) -> None:
        """Begin a search of tokens below the numbers of `range_table`."""
        raise NotImplementedError("Abstract method.")

    def next_tokens(self) -> Tokens:
        """Return the tokens to try next."""
        raise NotImplementedError("Abstract method.")


class SAController(EvolutionaryController):
    """Simulated annealing: one token changes at a time.

    Worse tokens are accepted with the probability exp(difference of rewards / temperature); the
    temperature, at first `init_temperature`, is multiplied by `reduce_rate` at each update. Random
    numbers are NumPy's global ones. Tokens that break the constraint are drawn again at most
    `max_iter_number` times.
    """

    def __init__(
        self,
        range_table: Sequence[int] | None = None,
        reduce_rate: float = 0.85,
        init_temperature: float = 1024,
        max_iter_number: int = 300,
    ) -> None:
        super().__init__()
        self._range_table = range_table
        self._reduce_rate = reduce_rate
        self._init_temperature = init_temperature
        self._max_iter_number = max_iter_number
        self._constrain_func: Constraint | None = None
        self._reward = self._max_reward = -1.0
        self._tokens: Tokens | None = None
        self._best_tokens: Tokens | None = None
        self._iter = 0

    @property
    def best_tokens(self) -> Tokens | None:
        """The tokens with the best reward, None before the first one."""
        return self._best_tokens

    def __getstate__(self) -> dict[str, object]:
        """What a copy has: all but the constraint, which may be a local function."""
        return {name: value for name, value in vars(self).items() if name != "_constrain_func"}

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride] - as in release 1.8.5
        self,
        range_table: Sequence[int],
        init_tokens: Tokens,
        constrain_func: Constraint | None = None,
    ) -> None:
        """Begin a search at `init_tokens`; token i is at least 0 and below `range_table[i]`.

        `constrain_func` says whether tokens may be proposed.
        """
        self._range_table, self._constrain_func = range_table, constrain_func
        self._tokens, self._iter = init_tokens, 0

    def update(self, tokens: Tokens, reward: float) -> None:
        """Learn the reward of tokens, and perhaps continue from them."""
        self._iter += 1
        temperature = self._init_temperature * self._reduce_rate**self._iter
        gain = reward - self._reward
        if gain > 0 or np.random.random() <= math.exp(gain / temperature):
            self._reward, self._tokens = reward, tokens
        if reward > self._max_reward:
            self._max_reward, self._best_tokens = reward, tokens
        _logger.info(
            "iteration %d: reward %s of %s; best: %s of %s",
            self._iter, reward, tokens, self._max_reward, self._best_tokens,
        )  # fmt: skip

    def next_tokens(self, control_token: Tokens | None = None) -> Tokens:
        """Return the current tokens, or `control_token`, with one of them changed.

        Raises ValueError before `reset`.
        """
        tokens = control_token or self._tokens
        if tokens is None or self._range_table is None:
            raise ValueError("there are no tokens to change: call reset(range_table, init_tokens)")
        limits = self._range_table
        changed = list(tokens)
        index = int(len(limits) * np.random.random())
        step = np.random.randint(limits[index] - 1) + 1
        changed[index] = int((changed[index] + step) % limits[index])
        if self._constrain_func is None:
            return changed
        for _ in range(self._max_iter_number):
            if self._constrain_func(changed):
                break
            index = int(len(limits) * np.random.random())
            changed = list(tokens)
            changed[index] = int(np.random.randint(limits[index]))
        return changed
