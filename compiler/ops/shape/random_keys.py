"""Keys of random numbers: one for each op that draws, made anew in every step.

Kernels draw from a key that lies in memory (`compiler.ir.philox`), so that nothing is compiled anew
for another seed, and who draws from a key twice draws the same twice. The pass `draw_keys` makes
the keys and tells ops of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.opdef import OpDef, attr_list, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import SourceBuilder
from compiler.ir.types import Array, DType, TensorType

KEYS = 2**63


def made_keys(source: np.random.Generator, seeds: Sequence[int]) -> Array:
    """A key for each seed: the seed, or one by chance for -1; int64, with a 0 behind each."""
    keys, given = source.integers(KEYS, size=len(seeds)), np.array(seeds, np.int64)
    return np.column_stack((np.where(given < 0, keys, given), np.zeros_like(given))).reshape(-1)


class RandomKeys(OpDef, op="random_keys"):
    """Out = a key for each of `seeds`: the seed itself, or in every step another one for -1; int64.

    Keys stand at every second place: kernels read faster where their memory begins at 16 bytes. No
    op of programs: compiling for a device puts it in. The host makes the keys there too.
    """

    is_random = True

    Out = writes()
    seeds = attr_list(int, WIDE)

    def infer(self) -> TensorType:
        if not self.seeds or min(self.seeds) < -1:
            raise BadAttribute(f"random_keys: 'seeds' are {self.seeds}, expected some from -1 up")
        return TensorType(DType.INT64, (2 * len(self.seeds),))

    def numpy(self) -> Array:
        return made_keys(np.random.default_rng(), self.seeds)

    def filled(self, k: SourceBuilder) -> str:
        """Keys of a step as an expression, which a device copies; one source serves all steps."""
        source = k.at_bind("np.random.default_rng()", [], "generator")
        return f"{k.function(made_keys)}({source}, {tuple(self.seeds)})"
