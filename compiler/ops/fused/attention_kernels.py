"""Kernels of attention for targets that have none of their own: its scores are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compiler.ir.attention import AttentionLayout, ordered
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import HALVES, DType, Shape

Operands: TypeAlias = "tuple[DeviceOperand, DeviceOperand, DeviceOperand]"
"""Q, K and V."""


@dataclass(frozen=True)
class SeparateKernels:
    """Emits both products and the softmax as kernels of their own."""

    k: KernelBuilder
    layout: AttentionLayout

    def emit(
        self, factors: tuple[float, float], operands: Operands, mask: DeviceOperand | None,
        out: DeviceOperand,
    ) -> None:  # fmt: skip
        """Emit out = b * softmax(a * q @ kᵀ + mask) @ v for `factors` a and b."""
        Q, K, _ = operands
        q, key = ordered(Q.shape, self.layout.q), ordered(K.shape, self.layout.k)
        dtype = DType.FP32 if Q.type.dtype in HALVES else Q.type.dtype
        scores = self.k.scratch((*q[:-1], key[-2]), dtype)
        self._scores(scores, operands, mask, factors[0])
        self._softmax(scores, factors[1])
        self._results(scores, operands[2], out)

    def _scores(
        self, scores: DeviceOperand, operands: Operands, mask: DeviceOperand | None, scale: float
    ) -> None:
        """Emit the first product, with the mask added."""
        Q, K, _ = operands
        layout = self.layout
        *stack, queries, keys = scores.shape
        width = ordered(Q.shape, layout.q)[-1]

        def factors(
            batch: tuple[Number, ...], i: Number, j: Number, left: Number, right: Number
        ) -> tuple[Number, Number]:
            return Q[_placed((*batch, i, left), layout.q)], K[_placed((*batch, j, right), layout.k)]

        def store(batch: tuple[Number, ...], i: Number, j: Number, total: Number) -> None:
            indices = (*batch, i, j)
            masked = 0.0 if mask is None else mask[_broadcast(indices, mask.shape)]
            self.k.store(scores, indices, total * scale + masked)

        self.k.contraction(stack, (queries, keys, width), factors, store)

    def _softmax(self, scores: DeviceOperand, factor: float) -> None:
        """Emit factor * softmax of the rows of scores, in place."""
        k = self.k
        row, j = k.grid(*scores.shape[:-1]), k.loop(scores.shape[-1])
        score = scores[(*row, j)]
        powers = k.exp(k.maximum(score - k.max(score, j), -64.0))
        k.store(scores, (*row, j), powers / k.sum(powers, j) * factor)

    def _results(self, weights: DeviceOperand, V: DeviceOperand, out: DeviceOperand) -> None:
        """Emit the second product."""
        layout = self.layout
        *stack, queries, keys = weights.shape
        columns = ordered(V.shape, layout.v)[-1]

        def factors(
            batch: tuple[Number, ...], i: Number, j: Number, left: Number, right: Number
        ) -> tuple[Number, Number]:
            return weights[(*batch, i, left)], V[_placed((*batch, right, j), layout.v)]

        def store(batch: tuple[Number, ...], i: Number, j: Number, total: Number) -> None:
            self.k.store(out, ordered((*batch, i, j), layout.out), total)

        self.k.contraction(stack, (queries, columns, keys), factors, store)


def _broadcast(indices: Sequence[Number], mask: Shape) -> tuple[Number, ...]:
    """Return the indices of a mask's element."""
    own = indices[len(indices) - len(mask) :]
    return tuple(0 if size == 1 else i for i, size in zip(own, mask, strict=True))


def _placed(indices: Sequence[Number], axes: Sequence[int]) -> tuple[Number, ...]:
    """Return indices of matrices, whose axes are those of an operand in an order, as its own."""
    pairs = sorted(zip(axes, indices, strict=True), key=lambda pair: pair[0])
    return tuple(index for _, index in pairs)
