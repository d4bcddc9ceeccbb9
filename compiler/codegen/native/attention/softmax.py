"""The softmax of scores that lie transposed: a lane is a query, a step is a key."""

from __future__ import annotations

from compiler.codegen.native.functions.arithmetic import extreme
from compiler.codegen.native.functions.exponentials import bounded_exp
from compiler.codegen.native.functions.floats import number
from compiler.codegen.native.llvm_ir import Function, Index, Type, Value, zero
from compiler.support.dataclass import dataclass

LOWEST = -64.0
"""Scores are at least this, relative to the maximum: see the op `softmax`."""

_maximum = extreme("gt")


@dataclass(frozen=True)
class TransposedSoftmax:
    """Emits the exponentials of scores [keys, vectors × lanes] and their sums over the keys."""

    function: Function
    type: Type
    vectors: int
    keys: Index

    def emit(self, scores: Value) -> list[Value]:
        """Replace the scores by exponentials; returns a vector of sums for each of `vectors`.

        The sum is NaN in lanes where a score is NaN, one is +inf or all are -inf.
        """
        f = self.function
        largest = self._largest(scores)

        def step(key: Value, sums: list[Value]) -> list[Value]:
            row = self._row(scores, key)
            totals: list[Value] = []
            for vector, (top, total) in enumerate(zip(largest, sums, strict=True)):
                at = f.address(row, vector, self.type.nbytes * self.type.lanes)
                shifted = f.sub(f.load(self.type, at), top)
                power = bounded_exp(f, _maximum(f, number(shifted, LOWEST), shifted))
                f.store(power, at)
                totals.append(f.add(total, power))
            return totals

        return f.loop_if_any(0, self.keys, 1, step, [zero(self.type)] * self.vectors)

    def _largest(self, scores: Value) -> list[Value]:
        """The maximum over the keys; one that is NaN may be any number, since it is subtracted."""
        f = self.function

        def step(key: Value, held: list[Value]) -> list[Value]:
            row = self._row(scores, key)
            found: list[Value] = []
            for vector, top in enumerate(held):
                at = f.address(row, vector, self.type.nbytes * self.type.lanes)
                score = f.load(self.type, at)
                found.append(f.select(f.compare("ogt", score, top), score, top))
            return found

        lowest = number(zero(self.type), float("-inf"))
        return f.loop_if_any(0, self.keys, 1, step, [lowest] * self.vectors)

    def _row(self, scores: Value, key: Value) -> Value:
        """The address of a key's scores."""
        nbytes = self.type.nbytes * self.type.lanes
        return self.function.address(scores, key, self.vectors * nbytes)
