"""Hashes of n-grams: xxHash32, and Bloom filters over 128-bit MurmurHash3.

Collet, "xxHash fast digest algorithm", 2016. Appleby, "MurmurHash3", 2011. Bloom, "Space/time
trade-offs in hash coding with allowable errors", 1970.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.types import Array

XX_1, XX_2, XX_3, XX_4, XX_5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
MURMUR_1, MURMUR_2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
FILTER_MAGIC, FILTER_HEADER = 17070416, 32
"""Magic number of a filter, and the size in bytes of its header: four numbers of 64 bits."""
MAX_HASHES = 64
"""Maximum number of hash pairs of a filter."""


def left(bits: Array, by: int) -> Array:
    """Return unsigned numbers rotated left by `by` bits."""
    width = 8 * bits.dtype.itemsize
    return (bits << by) | (bits >> (width - by))


def xx_hash_32(words: Array, seeds: Array) -> Array:
    """Return the xxHash32 of rows of words for seeds: uint32 [rows, words] and [n] to [rows, n].

    >>> [hex(each) for each in xx_hash_32(np.array([[1, 2]], np.uint32), np.arange(2))[0]]
    ['0x690b83db', '0x5433b226']
    """
    lanes = words.astype(np.uint32).T[:, :, None]
    state = seeds.astype(np.uint32) + np.zeros((len(words), 1), np.uint32)
    stripes = len(lanes) // 4 * 4
    state = xx_stripes(lanes[:stripes], state) if stripes else state + np.uint32(XX_5)
    state = state + np.uint32(4 * len(lanes))
    for lane in lanes[stripes:]:
        state = left(state + lane * np.uint32(XX_3), 17) * np.uint32(XX_4)
    state = (state ^ (state >> 15)) * np.uint32(XX_2)
    state = (state ^ (state >> 13)) * np.uint32(XX_3)
    return state ^ (state >> 16)


def xx_stripes(lanes: Array, seeds: Array) -> Array:
    """Return the xxHash32 state after stripes of four words: [words, rows, 1] to [rows, n]."""
    starts = [(XX_1 + XX_2) % 2**32, XX_2, 0, -XX_1 % 2**32]
    states = [seeds + np.uint32(start) for start in starts]
    for position, lane in enumerate(lanes):
        mixed = states[position % 4] + lane * np.uint32(XX_2)
        states[position % 4] = left(mixed, 13) * np.uint32(XX_1)
    rotated = [left(state, by) for state, by in zip(states, (1, 7, 12, 18), strict=True)]
    return rotated[0] + rotated[1] + rotated[2] + rotated[3]


def murmur_128(words: Array, seed: int) -> tuple[Array, Array]:
    """Return both halves of the MurmurHash3 of rows: uint32 [rows, words] to uint64 [rows] each."""
    wide = words.astype(np.uint64)
    blocks = wide.shape[1] // 4 * 4
    a, b = np.full(len(wide), seed, np.uint64), np.full(len(wide), seed, np.uint64)
    for at in range(0, blocks, 4):
        low, high = wide[:, at] | (wide[:, at + 1] << 32), wide[:, at + 2] | (wide[:, at + 3] << 32)
        a = (left(a ^ murmur_low(low), 27) + b) * 5 + 0x52DCE729
        b = (left(b ^ murmur_high(high), 31) + a) * 5 + 0x38495AB5
    rest = [wide[:, at] for at in range(blocks, wide.shape[1])]
    if len(rest) > 2:
        b = b ^ murmur_high(rest[2])
    if rest:
        a = a ^ murmur_low(rest[0] | (rest[1] << 32) if len(rest) > 1 else rest[0])
    length = np.uint64(4 * wide.shape[1])
    a, b = a ^ length, b ^ length
    a = a + b
    b = b + a
    a, b = murmur_end(a), murmur_end(b)
    a = a + b
    return a, b + a


def murmur_low(block: Array) -> Array:
    """Mix the first 64 bits of a block for the first half."""
    return left(block * MURMUR_1, 31) * MURMUR_2


def murmur_high(block: Array) -> Array:
    """Mix the last 64 bits of a block for the second half."""
    return left(block * MURMUR_2, 33) * MURMUR_1


def murmur_end(half: Array) -> Array:
    """Finalise one half of MurmurHash3."""
    half = (half ^ (half >> 33)) * 0xFF51AFD7ED558CCD
    half = (half ^ (half >> 33)) * 0xC4CEB9FE1A85EC53
    return half ^ (half >> 33)


def filter_bits(table: Array, name: str) -> tuple[Array, int, int]:
    """Return the bytes of a Bloom filter, its number of bits, and of hash pairs per key.

    `table` has them as float32: magic number, bits, pairs and keys as uint64, then the bits, the
    most significant of a byte first. Raises ValueError if this is not a filter, or is truncated.
    """
    stored = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
    capacity = 8 * (len(stored) - FILTER_HEADER)
    head = stored[:FILTER_HEADER].view(np.uint64).tolist() if capacity >= 0 else [0, 0, 0, 0]
    magic, bits, pairs, _ = head
    if magic != FILTER_MAGIC:
        raise ValueError(f"{name} is not a Bloom filter: expected {FILTER_MAGIC} at its start")
    if not (1 <= bits <= capacity and 1 <= pairs <= MAX_HASHES):
        raise ValueError(
            f"{name} has {bits} bits and {pairs} pairs per key, expected 1 to {capacity} and 1 to "
            f"{MAX_HASHES}"
        )
    return stored[FILTER_HEADER:], bits, pairs


def in_filter(table: Array, name: str, words: Array) -> Array:
    """Test if a Bloom filter may contain rows of words: uint32 [rows, words] to bool [rows]."""
    stored, bits, pairs = filter_bits(table, name)
    contained = np.ones(len(words), bool)
    for seed in range(pairs):
        for half in murmur_128(words, seed):
            position = half % bits
            contained &= (stored[position >> 3] >> (7 - (position & 7)).astype(np.uint8)) & 1 == 1
    return contained
