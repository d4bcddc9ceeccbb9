"""RNG keys: one per random op, generated in every step.

Kernels read keys from memory (`compiler.ir.philox`), so that another seed needs no recompilation,
and drawing twice from one key yields the same numbers. The pass `draw_keys` inserts the key op and
connects the random ops to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.opdef import OpDef, Slots, attr_list, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.types import Array, DType, TensorType

KEYS = 2**63


def make_keys(source: np.random.Generator, seeds: Sequence[int]) -> Array:
    """Return a key per seed: the seed, or a random key for -1; int64, each followed by a 0."""
    keys, seed_values = source.integers(KEYS, size=len(seeds)), np.array(seeds, np.int64)
    return np.column_stack(
        (np.where(seed_values < 0, keys, seed_values), np.zeros_like(seed_values))
    ).reshape(-1)


class RandomKeys(OpDef, op="random_keys"):
    """Out = an RNG key per entry of `seeds`: the seed, or a new random key in every step for -1.

    Keys have a stride of two elements: kernels load faster from 16-byte aligned addresses. Not a
    program op: compiling for a device or to native code inserts it. The host generates the keys.
    """

    is_random = True

    Out = writes()
    seeds = attr_list(int, WIDE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        if not self.seeds or min(self.seeds) < -1:
            raise BadAttribute(
                f"random_keys: 'seeds' are {self.seeds}, expected one or more, each -1 or above"
            )
        return TensorType(DType.INT64, (2 * len(self.seeds),))

    def numpy(self) -> Array:
        return make_keys(np.random.default_rng(), self.seeds)

    def filled(self, k: SourceBuilder, s: Slots[Operand]) -> str:
        """Return source text for a step's keys, which a device copies; all use one generator."""
        source = k.at_bind("np.random.default_rng()", [], "generator")
        return f"{k.function(make_keys)}({source}, {tuple(self.seeds)})"
