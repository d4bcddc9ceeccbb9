"""Dropout of exponentials that lie transposed: a lane is a query, a step is a key.

The numbers are those of `compiler.ir.philox` for the indices of scores in [stack…, queries, keys].
A Philox block has those of four consecutive keys of a query. Unless every row begins a block, four
keys of a lane lie in two blocks, of which the second is computed and the first is that of the four
keys before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np

from compiler.codegen.native.llvm_ir import (
    I32,
    I64,
    Function,
    Index,
    Type,
    Value,
    constant,
    lane_numbers,
)
from compiler.codegen.native.philox import block_words
from compiler.support.dataclass import dataclass

_GROUP = 4
"""Keys that are decided at a time: the words of a Philox block."""


@dataclass(frozen=True)
class TransposedDropout:
    """Emits the dropout of exponentials [keys, vectors × lanes].

    `is_aligned` says that the number of keys is a multiple of four.
    """

    function: Function
    type: Type
    vectors: int
    keys: Index
    is_aligned: bool
    probability: float

    def emit(
        self, scores: Value, key: Value, row: Index, dropped: Callable[[Value], Value]
    ) -> None:
        """Replace exponentials that are dropped, for an RNG key and the index of the first row."""
        f = self.function
        firsts = [self._first_scores(row, vector) for vector in range(self.vectors)]
        blocks = [f.binary("lshr", first, constant(first.type, 2)) for first in firsts]
        shifts = [f.binary("and", first, constant(first.type, 3)) for first in firsts]

        def group(start: Value, before: list[Value]) -> list[Value]:
            number = f.binary("lshr", start, f.constant(I64, 2))
            ahead: list[Value] = []
            for vector, (block, shift) in enumerate(zip(blocks, shifts, strict=True)):
                words = before[_GROUP * vector : _GROUP * (vector + 1)]
                following = self._words(key, block, number, 0 if self.is_aligned else 1)
                chosen = following if self.is_aligned else self._shifted(words, following, shift)
                for step, word in enumerate(chosen):
                    self._step(scores, f.add(start, f.constant(I64, step)), vector, word, dropped)
                ahead += [] if self.is_aligned else following
            return ahead

        zero = f.constant(I64, 0)
        first = [] if self.is_aligned else [
            word for block in blocks for word in self._words(key, block, zero, 0)
        ]  # fmt: skip
        f.loop_if_any(0, self.keys, _GROUP, group, first)

    def _first_scores(self, row: Index, vector: int) -> Value:
        """The index of the first score of each query of a vector."""
        f, lanes = self.function, self.type.lanes
        first = f.add(f.index(row), f.constant(I64, vector * lanes))
        numbers = f.splat(first, lanes)
        numbers = f.add(numbers, lane_numbers(numbers.type))
        return f.mul(numbers, f.splat(f.index(self.keys), lanes))

    def _words(self, key: Value, block: Value, number: Value, ahead: int) -> list[Value]:
        """The words of a lane's block, so many blocks on, as i32."""
        f = self.function
        moved = f.splat(f.add(number, f.constant(I64, ahead)), block.type.lanes)
        words = block_words(f, key, 0, f.add(block, moved))
        return [f.convert("trunc", word, I32) for word in words]

    def _shifted(
        self, words: Sequence[Value], following: Sequence[Value], shift: Value
    ) -> list[Value]:
        """Four words of two blocks, from that of each lane's shift on."""
        f, found = self.function, [*words, *following]
        for bit in (1, 2):
            masked = f.binary("and", shift, constant(shift.type, bit))
            is_set = f.compare("ne", masked, constant(shift.type, 0))
            pairs = zip(found, found[bit:], strict=False)
            found = [f.select(is_set, later, own) for own, later in pairs]
        return found[:_GROUP]

    def _step(
        self, scores: Value, step: Value, vector: int, word: Value,
        dropped: Callable[[Value], Value],
    ) -> None:  # fmt: skip
        """Drop the exponentials of a key, if there is one."""
        f, size = self.function, self.type.nbytes * self.type.lanes
        at = f.address(f.address(scores, step, self.vectors * size), vector, size)
        if self.is_aligned:
            self._drop(at, word, dropped)
            return
        is_key = f.compare("ult", step, f.index(self.keys))
        f.when(is_key, lambda: self._drop(at, word, dropped))

    def _drop(self, at: Value, word: Value, dropped: Callable[[Value], Value]) -> None:
        f = self.function
        power = f.load(self.type, at)
        drawn = f.binary("lshr", word, constant(word.type, 8))
        is_kept = f.compare("uge", drawn, constant(word.type, _least(self.probability)))
        f.store(f.select(is_kept, power, dropped(power)), at)


def _least(probability: float) -> int:
    """The least of 2^24 integers that is kept: those from the float32 probability * 2^24 on.

    >>> _least(0.5), _least(0.0), _least(1.0)
    (8388608, 0, 16777216)
    """
    return ceil(float(np.float32(probability)) * 2**24)
