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

    def emit_gradients(
        self, factors: tuple[float, float], operands: Operands, mask: DeviceOperand | None,
        d_out: DeviceOperand, results: tuple[DeviceOperand, ...],
    ) -> None:  # fmt: skip
        """Emit the gradients by q, k and v into `results`, from that of the output."""
        Q, K, V = operands
        k, layout = self.k, self.layout
        q, key = ordered(Q.shape, layout.q), ordered(K.shape, layout.k)
        dtype = DType.FP32 if Q.type.dtype in HALVES else Q.type.dtype
        weights, by_scores = (k.scratch((*q[:-1], key[-2]), dtype) for _ in range(2))
        self._scores(weights, operands, mask, factors[0])
        self._softmax(weights, 1.0)
        columns = ordered(V.shape, layout.v)[-1]
        stack, queries, keys = q[:-2], q[-2], key[-2]
        upstream = _Matrix(d_out, layout.from_out)
        values = _Matrix(V, layout.v)
        self._product(
            (*stack, queries, keys, columns), (upstream, False), (values, True),
            _Matrix(by_scores, ()), factors[1],
        )  # fmt: skip
        self._score_gradients(weights, by_scores, factors[0])
        scores, by_query = _Matrix(by_scores, ()), (*stack, queries, q[-1], keys)
        by_key, by_value = (*stack, keys, q[-1], queries), (*stack, keys, columns, queries)
        d_q, d_k, d_v = (
            _Matrix(result, order)
            for result, order in zip(results, (layout.q, layout.k, layout.v), strict=True)
        )
        self._product(by_query, (scores, False), (_Matrix(K, layout.k), False), d_q)
        self._product(by_key, (scores, True), (_Matrix(Q, layout.q), False), d_k)
        self._product(by_value, (_Matrix(weights, ()), True), (upstream, False), d_v, factors[1])

    def _score_gradients(
        self, weights: DeviceOperand, by_weights: DeviceOperand, scale: float
    ) -> None:
        """Replace gradients by weights with those by scores."""
        k = self.k
        row, j = k.grid(*weights.shape[:-1]), k.loop(weights.shape[-1])
        weight, gradient = weights[(*row, j)], by_weights[(*row, j)]
        mean = k.sum(weight * gradient, j)
        k.store(by_weights, (*row, j), (gradient - mean) * weight * scale)

    def _product(
        self, sizes: Shape, a: tuple[_Matrix, bool], b: tuple[_Matrix, bool], out: _Matrix,
        factor: float = 1.0,
    ) -> None:  # fmt: skip
        """Emit a product of matrices, each with whether it is transposed.

        `sizes` are the stack, rows, columns and the reduced size.
        """
        *stack, rows, columns, inner = sizes

        def factors(
            batch: tuple[Number, ...], i: Number, j: Number, left: Number, right: Number
        ) -> tuple[Number, Number]:
            return a[0].at(batch, i, left, a[1]), b[0].at(batch, right, j, b[1])

        def store(batch: tuple[Number, ...], i: Number, j: Number, total: Number) -> None:
            place = _placed((*batch, i, j), out.order)
            self.k.store(out.operand, place, total if factor == 1.0 else total * factor)

        self.k.contraction(stack, (rows, columns, inner), factors, store)


@dataclass(frozen=True)
class _Matrix:
    """A stack of matrices in an operand, and the order of its axes."""

    operand: DeviceOperand
    order: Sequence[int]

    def at(self, batch: Sequence[Number], row: Number, column: Number, transposed: bool) -> Number:
        """Load an element of the matrices, or of their transposes."""
        inner = (column, row) if transposed else (row, column)
        return self.operand[_placed((*batch, *inner), self.order)]


def _broadcast(indices: Sequence[Number], mask: Shape) -> tuple[Number, ...]:
    """Return the indices of a mask's element."""
    own = indices[len(indices) - len(mask) :]
    return tuple(0 if size == 1 else i for i, size in zip(own, mask, strict=True))


def _placed(indices: Sequence[Number], axes: Sequence[int]) -> tuple[Number, ...]:
    """Return indices of matrices, whose axes are those of an operand in an order, as its own."""
    if not axes:
        return tuple(indices)
    pairs = sorted(zip(axes, indices, strict=True), key=lambda pair: pair[0])
    return tuple(index for _, index in pairs)
