"""Simulated annealing over tokens; values are those of release 1.8.5 with the same random numbers."""

import numpy as np
import pytest

from fluid.contrib.slim.searcher import EvolutionaryController, SAController


def test_tokens_and_rewards() -> None:
    np.random.seed(3)
    controller = SAController()
    controller.reset([5, 6, 7], [1, 2, 3])
    tried = []
    for _ in range(6):
        tokens = controller.next_tokens()
        tried.append(tokens)
        controller.update(tokens, sum(tokens) / 10)
    assert tried == [[1, 4, 3], [1, 4, 4], [1, 2, 4], [4, 2, 4], [2, 2, 4], [1, 2, 4]]
    assert controller.__getstate__()["_best_tokens"] == [4, 2, 4]


def test_constraint() -> None:
    np.random.seed(3)
    controller = SAController(max_iter_number=5)
    controller.reset([5, 6, 7], [1, 2, 3], lambda tokens: sum(tokens) < 6)
    tried = [controller.next_tokens([1, 2, 3]) for _ in range(4)]
    assert tried == [[1, 2, 0], [1, 0, 3], [0, 2, 3], [1, 2, 2]]


def test_what_is_missing_raises() -> None:
    with pytest.raises(ValueError, match="call reset"):
        SAController().next_tokens()
    with pytest.raises(NotImplementedError):
        EvolutionaryController().next_tokens()
