"""Random numbers by key: the published vectors of Philox, and the laws of what is made of its words."""

import math

import numpy as np
import pytest

from compiler.ir.philox import (
    normal_by_key,
    philox,
    randint_by_key,
    uniform_by_key,
    uniform_float64_by_key,
    words,
)
from compiler.ops.shape.random_kernels import permutation_by_key, truncated

FULL = 2**32 - 1

# Random123, examples/kat_vectors: philox4x32 10; key, counter, words.
VECTORS = (
    (0, (0, 0, 0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (2**64 - 1, (FULL, FULL, FULL, FULL), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        0x299F31D0_A4093822,
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
)

KEY = np.array([20_091, -3], np.int64)
COUNT = 40_000


def normal_law(x):
    """Return how likely a normal number is below x."""
    return (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


LAWS = {
    "uniform": (uniform_by_key(KEY, 0, [COUNT]), lambda x: x, 0.5, 1 / 12),
    "fine": (uniform_float64_by_key(KEY, 1, [COUNT]), lambda x: x, 0.5, 1 / 12),
    "normal": (normal_by_key(KEY, 0, [COUNT], np.float32), normal_law, 0.0, 1.0),
    "normal64": (normal_by_key(KEY, 1, [COUNT], np.float64), normal_law, 0.0, 1.0),
    "truncated": (
        truncated(np, uniform_by_key(KEY, 1, [COUNT])),
        lambda x: (normal_law(x) - normal_law(-2.0)) / math.erf(math.sqrt(2)),
        0.0,
        0.7737413,
    ),
}
"""Numbers of each law, how likely one is below a number, mean and variance."""


@pytest.mark.parametrize(("key", "counter", "wanted"), VECTORS)
def test_words_are_those_of_random123(key, counter, wanted):
    actual = philox(key, [np.uint64(word) for word in counter])
    assert [f"{int(word):08x}" for word in actual] == wanted.split()


@pytest.mark.parametrize("law", LAWS)
def test_numbers_follow_their_law(law):
    """Mean, variance, and by Kolmogorov and Smirnov the largest distance, all within 1 %."""
    drawn, below, mean, variance = LAWS[law]
    assert abs(drawn.mean(dtype=np.float64) - mean) < 2.58 * math.sqrt(variance / COUNT)
    assert abs(drawn.var(dtype=np.float64) / variance - 1) < 0.02
    ordered = below(np.sort(drawn.astype(np.float64)))
    steps = np.arange(COUNT + 1) / COUNT
    distance = max(np.abs(ordered - steps[:-1]).max(), np.abs(ordered - steps[1:]).max())
    assert distance * math.sqrt(COUNT) < 1.63


@pytest.mark.parametrize("law", LAWS)
def test_neighbours_have_nothing_to_do_with_each_other(law):
    drawn = LAWS[law][0].astype(np.float64)
    for lag in (1, 2, 3, 4, 7, 1024):
        assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 3 / math.sqrt(COUNT)


def test_keys_and_streams_have_nothing_to_do_with_each_other():
    sources = [
        uniform_by_key(np.array([key]), 0, [COUNT], s) for key in (0, 1, 2**32) for s in (0, 1)
    ]
    apart = np.corrcoef(sources) - np.eye(len(sources))
    assert np.abs(apart).max() < 3.5 / math.sqrt(COUNT)


@pytest.mark.parametrize("law", ["uniform", "fine"])
def test_even_numbers_go_from_nought_to_below_one(law):
    drawn = LAWS[law][0]
    assert 0.0 <= drawn.min() < 1e-3
    assert 1 - 1e-3 < drawn.max() < 1.0


@pytest.mark.parametrize("span", [1, 2, 10, 2**31 + 7, 2**62 + 2**61, 2**63])
def test_whole_numbers_are_sixty_four_bits_times_their_span(span):
    drawn = randint_by_key(KEY, 0, [500], span)
    pairs = words(20_091, 0, 1000).reshape(-1, 2).tolist()
    assert drawn.tolist() == [(high * 2**32 + low) * span >> 64 for low, high in pairs]


def test_whole_numbers_are_even():
    counts = np.bincount(randint_by_key(KEY, 0, [COUNT], 10), minlength=10)
    expected = COUNT / 10
    assert ((counts - expected) ** 2 / expected).sum() < 21.67  # chi squared, 9 degrees, 1 %


def test_orders_have_every_number_once_and_are_all_as_likely():
    seen = [tuple(permutation_by_key(np.array([key]), 0, 3).tolist()) for key in range(6000)]
    counts = np.array([seen.count(order) for order in sorted(set(seen))])
    assert len(counts) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 15.09  # chi squared, 5 degrees, 1 %
