"""Samplers of negative classes, and their class probabilities.

`uniform` (0) samples uniformly; `log_uniform_classes` (1) samples class k with probability
log((k + 2) / (k + 1)) / log(classes + 1), which favours small indices, i.e. frequent words;
`custom_dist` (2) samples given probabilities by the alias method. Reference: math/sampler.cc.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.philox import randint_by_key, uniform_by_key, uniform_float64_by_key
from compiler.ir.types import Array
from compiler.ops.shape.random import generator

SAMPLERS = UNIFORM, LOG_UNIFORM, CUSTOM = range(3)


def class_chances(classes: Array, sampler: int, count: int, given: Array | None) -> Array:
    """Return the sampling probability of each class, out of `count` classes."""
    if sampler == UNIFORM:
        return np.full(classes.shape, 1 / count)
    if sampler == LOG_UNIFORM or given is None:
        return np.log1p(1 / (classes + 1)) / np.log(count)
    return given.reshape(-1)[classes]


def log_uniform_classes(uniform: Array, count: int) -> Array:
    """Map uniform numbers in [0, 1) to log-uniform class indices."""
    powers = np.exp(uniform * np.log(count + 1))
    return np.minimum(powers.astype(np.int64), count) - 1


def alias_sample(drawn: Array, uniform: Array, alias: Array, chances: Array) -> Array:
    """Apply the alias method: keep each drawn class with its probability, else take its alias."""
    other = alias.reshape(-1)[drawn]
    stays = (uniform < chances.reshape(-1)[drawn]) | (other < 0)
    return np.where(stays, drawn, other).astype(np.int64)


def draw_classes(
    shape: tuple[int, ...],
    sampler: int,
    count: int,
    seed: int,
    alias: Array | None,
    chances: Array | None,
) -> Array:
    """Sample class indices in a shape; seed 0 yields different ones every time.

    The last class is never sampled log-uniformly: as in the reference, the probabilities of the
    others sum to 1.
    """
    source = generator(seed)
    if sampler == UNIFORM:
        return source.integers(0, count, shape)
    if sampler == LOG_UNIFORM or alias is None or chances is None:
        return log_uniform_classes(source.random(shape), max(count - 1, 1))
    return alias_sample(source.integers(0, alias.size, shape), source.random(shape), alias, chances)


def classes_by_key(
    Key: Array,
    place: int,
    shape: tuple[int, ...],
    sampler: int,
    count: int,
    alias: Array | None,
    chances: Array | None,
) -> Array:
    """Sample as `draw_classes` from an RNG key; kernels draw the same classes."""
    if sampler == UNIFORM:
        return randint_by_key(Key, place, shape, count)
    if sampler == LOG_UNIFORM or alias is None or chances is None:
        return log_uniform_classes(uniform_float64_by_key(Key, place, shape), max(count - 1, 1))
    drawn = randint_by_key(Key, place, shape, alias.size)
    return alias_sample(drawn, uniform_by_key(Key, place, shape, 1), alias, chances)


def draw_unique(wanted: int, count: int, seed: int) -> tuple[Array, int]:
    """Return distinct log-uniform class indices, and the number of draws needed."""
    source = generator(seed)
    distinct, tries = dict[int, None](), 0
    while len(distinct) < wanted:
        for drawn in log_uniform_classes(source.random((wanted,)), count).tolist():
            tries += len(distinct) < wanted
            if len(distinct) < wanted:
                distinct[drawn] = None
    return np.array(list(distinct), np.int64), tries
