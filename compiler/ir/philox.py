"""Counter-based random numbers (Philox 4x32-10): the same on every machine, independent of order.

Philox maps a 64-bit key and a 128-bit counter to four 32-bit words. Element i of a stream is word i
% 4 of the block with counter (i // 4, stream), so kernels compute it where they need it: in
forward, backward and rematerialised ops. This is the NumPy version, the reference implementation
for the kernels; the arithmetic after the words is the same in both.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.ir.types import Array

WORD = 2**32


def philox(key: int, counter: Sequence[Array]) -> list[Array]:
    """Compute the four words for a key and the four words of a counter: uint64 arrays of one shape.

    >>> [hex(int(word)) for word in philox(0, [np.uint64(0)] * 4)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    low, shift = np.uint64(WORD - 1), np.uint64(32)
    a, b, c, d = counter
    first, second = key % WORD, key // WORD % WORD
    for _ in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b = (right >> shift) ^ b ^ np.uint64(first), right & low
        c, d = (left >> shift) ^ d ^ np.uint64(second), left & low
        first, second = (first + 0x9E3779B9) % WORD, (second + 0xBB67AE85) % WORD
    return [a, b, c, d]


def words(key: int, stream: int, count: int) -> Array:
    """Return the first `count` words of a stream: uint64 [count]."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    none = np.zeros_like(blocks)
    counter = [
        blocks & np.uint64(WORD - 1),
        blocks >> np.uint64(32),
        none + np.uint64(stream),
        none,
    ]
    return np.stack(philox(key, counter), axis=-1).reshape(-1)[:count]


def rng_key(Key: Array, place: int) -> int:
    """Return element `place` of an int64 tensor of keys as an unsigned number."""
    return int(Key.reshape(-1)[place]) % 2**64


def uniform_by_key(Key: Array, place: int, sizes: Sequence[int], stream: int = 0) -> Array:
    """Draw float32 numbers, uniform on [0, 1): 24 bits of one word each."""
    count = int(np.prod(sizes, dtype=np.int64))
    drawn = words(rng_key(Key, place), stream, count) >> np.uint64(8)
    return (drawn.astype(np.float32) * np.float32(2.0**-24)).reshape(sizes)


def uniform_float64_by_key(Key: Array, place: int, sizes: Sequence[int]) -> Array:
    """Draw float64 numbers, uniform on [0, 1): 53 bits of two words each."""
    count = int(np.prod(sizes, dtype=np.int64))
    pairs = words(rng_key(Key, place), 0, 2 * count).reshape(-1, 2)
    drawn = (pairs[:, 1] << np.uint64(32) | pairs[:, 0]) >> np.uint64(11)
    return (drawn.astype(np.float64) * 2.0**-53).reshape(sizes)


def normal_by_key(Key: Array, place: int, sizes: Sequence[int], dtype: Any) -> Array:
    """Draw standard normal numbers by the Box-Muller transform, from one word each.

    Elements 2n and 2n + 1 are the two outputs for one pair of words.
    """
    count = int(np.prod(sizes, dtype=np.int64))
    drawn = words(rng_key(Key, place), 0, count + count % 2).astype(dtype).reshape(-1, 2)
    near, periods = drawn[:, 0] * dtype(2.0**-32) + dtype(2.0**-33), drawn[:, 1] * dtype(2.0**-32)
    far = np.sqrt(dtype(-2.0) * np.log(near))
    pair = np.stack([far * cos_2pi(periods), far * cos_2pi(periods - 0.25)], axis=-1)
    return pair.reshape(-1)[:count].reshape(sizes)


def cos_2pi(periods: Array) -> Array:
    """Compute cos(2 pi x) for x from -1/4 to 1, with an error below 1e-10.

    Evaluates the sine of the distance to the nearest quarter period by a fitted odd polynomial,
    since general-purpose cosines are far slower in kernels.
    """
    distance = 0.25 - np.abs(periods - np.floor(periods + 0.5))
    s = distance * distance
    slope = s * (s * (s * -14.3941354073 + 42.0098057339) - 76.7042813219) + 81.6052262063
    return distance * (s * (s * slope - 41.341702117) + 6.28318530707)


def randint_by_key(
    Key: Array, place: int, sizes: Sequence[int], span: int, stream: int = 0
) -> Array:
    """Draw int64 numbers, uniform on [0, span), where span is at most 2**63.

    Takes the high part of the product of 64 random bits and the span (Lemire's method without
    rejection): the bias of a number is at most 2**-64.
    """
    count = int(np.prod(sizes, dtype=np.int64))
    shift, low = np.uint64(32), np.uint64(WORD - 1)
    pairs = words(rng_key(Key, place), stream, 2 * count).reshape(-1, 2)
    first, second = np.uint64(span % WORD), np.uint64(span // WORD)
    carried = pairs[:, 0] * first >> shift
    middle = pairs[:, 1] * first + carried
    other = pairs[:, 0] * second + (middle & low)
    whole = pairs[:, 1] * second + (middle >> shift) + (other >> shift)
    return whole.astype(np.int64).reshape(sizes)


class Numbers:
    """NumPy and the counter-based random numbers: the `xp` of bodies that draw."""

    uniform_by_key = staticmethod(uniform_by_key)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


NUMBERS = Numbers()
