"""`hash`: rows of integers hashed to bounded ids by xxHash64, so that words need no vocabulary."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import require_dtype

PRIME_1 = 0x9E3779B185EBCA87
PRIME_2 = 0xC2B2AE3D27D4EB4F
PRIME_3 = 0x165667B19E3779F9
PRIME_4 = 0x85EBCA77C2B2AE63
PRIME_5 = 0x27D4EB2F165667C5


def rotate_left(bits: Array, by: int) -> Array:
    """Rotate 64-bit words to the left."""
    return (bits << by) | (bits >> (64 - by))


def xxhash_round(state: Array, lane: Array) -> Array:
    """Return the xxHash64 state after a round with 8 more bytes."""
    return rotate_left(state + lane * PRIME_2, 31) * PRIME_1


def hash_stripes(lanes: Array, seeds: Array) -> Array:
    """Hash stripes of four lanes: uint64 [4 * stripes, rows, 1] to [rows, seeds]."""
    starts = (PRIME_1 + PRIME_2, PRIME_2, 0, -PRIME_1)
    states = [seeds + start % 2**64 for start in starts]
    for index, lane in enumerate(lanes):
        states[index % 4] = xxhash_round(states[index % 4], lane)
    mixed_states = [
        rotate_left(state, by) for state, by in zip(states, (1, 7, 12, 18), strict=True)
    ]
    merged = mixed_states[0] + mixed_states[1] + mixed_states[2] + mixed_states[3]
    nothing = np.zeros_like(seeds)
    for state in states:
        merged = (merged ^ xxhash_round(nothing, state)) * PRIME_1 + PRIME_4
    return merged


def avalanche(state: Array) -> Array:
    """Apply the final avalanche of xxHash64."""
    state = (state ^ (state >> 33)) * PRIME_2
    state = (state ^ (state >> 29)) * PRIME_3
    return state ^ (state >> 32)


def hash_rows(X: Array, times: int) -> Array:
    """Return the xxHash64 of each row's bytes with seeds 0 to `times` - 1, uint64 [rows, times].

    >>> [hex(each) for each in hash_rows(np.array([[1, 2]], np.int32), 2)[0]]
    ['0xcd3d4c871ee4183a', '0x146745e59b4ed4e7']
    """
    words = np.ascontiguousarray(X).view(np.uint32).astype(np.uint64).T[:, :, None]
    even = len(words) // 2 * 2
    lanes = words[0:even:2] | (words[1:even:2] << 32)
    seeds = np.arange(times, dtype=np.uint64) + np.zeros((len(X), 1), np.uint64)
    full = len(lanes) // 4 * 4
    state = hash_stripes(lanes[:full], seeds) if full else seeds + PRIME_5
    state = state + 4 * len(words)
    for lane in lanes[full:]:
        mixed = xxhash_round(np.zeros_like(seeds), lane)
        state = rotate_left(state ^ mixed, 27) * PRIME_1 + PRIME_4
    for word in words[even:]:
        state = rotate_left(state ^ (word * PRIME_1), 23) * PRIME_2 + PRIME_3
    return avalanche(state)


class Hash(OpDef, op="hash"):
    """Out[i, k] = the xxHash64 of the bytes of row i of X with seed k, modulo `mod_by`.

    X is int32 or int64 [rows, width], Out [rows, `num_hash`, 1]. Reference: hash_op.h.
    """

    no_kernel_reason = "it needs unsigned 64-bit arithmetic"

    X = reads(no_grad=True)
    Out = writes()
    num_hash = attr(1)
    mod_by = attr(100000, WIDE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        require_dtype("hash", "X", X, DType.INT32, DType.INT64)
        if X.rank != 2:
            raise ShapeError(f"hash: X is {X}, expected [rows, width]")
        for name, number in (("num_hash", self.num_hash), ("mod_by", self.mod_by)):
            if number < 1:
                raise BadAttribute(f"hash: {name!r} is {number}, expected 1 or more")
        return X.with_shape((X.shape[0], self.num_hash, 1))

    def numpy(self, X: Array) -> Array:
        hashes = hash_rows(X, self.num_hash) % self.mod_by
        return hashes.astype(X.dtype)[:, :, None]
