"""Kernels of attention for targets that have none of their own: its scores are in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.ir.attention import AttentionForm, ordered
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import HALVES, DType, Shape
from compiler.support.dataclass import dataclass

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class SeparateKernels:
    """Emits both products and the softmax as kernels of their own; operands as in `k.attention`."""

    k: KernelBuilder
    form: AttentionForm
    operands: Mapping[str, DeviceOperand]

    def emit(self) -> None:
        """Emit the attention."""
        scores = self._scratch_of_scores()
        self._scores(scores)
        if "statistics" in self.operands:
            self._statistics(scores)
        self._softmax(scores)
        self._drop(scores, scores)
        self._results(scores)

    def _scratch_of_scores(self) -> DeviceOperand:
        """Allocate [stack…, queries, keys]."""
        Q, K, layout = self.operands["q"], self.operands["k"], self.form.layout
        q, key = ordered(Q.shape, layout.q), ordered(K.shape, layout.k)
        dtype = DType.FP32 if Q.type.dtype in HALVES else Q.type.dtype
        return self.k.scratch((*q[:-1], key[-2]), dtype)

    def _scores(self, scores: DeviceOperand) -> None:
        """Emit the first product, with the mask added."""
        k, form, mask = self.k, self.form, self.operands.get("mask")
        Q, K = self.operands["q"], self.operands["k"]
        *stack, queries, keys = scores.shape
        width = ordered(Q.shape, form.layout.q)[-1]

        def factors(
            batch: tuple[Number, ...], i: Number, j: Number, left: Number, right: Number
        ) -> tuple[Number, Number]:
            return (
                Q[_placed((*batch, i, left), form.layout.q)],
                K[_placed((*batch, j, right), form.layout.k)],
            )

        def store(batch: tuple[Number, ...], i: Number, j: Number, total: Number) -> None:
            indices = (*batch, i, j)
            masked = 0.0 if mask is None else mask[_broadcast(indices, mask.shape)]
            score = total * form.scale + masked
            if form.is_causal:
                score = k.where(k.less(i, j), float("-inf"), score)
            k.store(scores, indices, score)

        k.contraction(stack, (queries, keys, width), factors, store)

    def _statistics(self, scores: DeviceOperand) -> None:
        """Emit the maximum and the sum of exponentials of each row."""
        k, out = self.k, self.operands["statistics"]
        row, j = k.grid(*scores.shape[:-1]), k.loop(scores.shape[-1])
        score = scores[(*row, j)]
        largest = k.max(score, j)
        k.store(out, (0, *row), largest * LOG2_E)
        k.store(out, (1, *row), k.sum(k.exp(score - largest), j))

    def _softmax(self, scores: DeviceOperand) -> None:
        """Emit the softmax of the rows of scores, in place."""
        k = self.k
        row, j = k.grid(*scores.shape[:-1]), k.loop(scores.shape[-1])
        score = scores[(*row, j)]
        powers = k.exp(k.maximum(score - k.max(score, j), -64.0))
        k.store(scores, (*row, j), powers / k.sum(powers, j))

    def _drop(self, weights: DeviceOperand, out: DeviceOperand) -> None:
        """Emit weights, or gradients by them, with 0 where a weight is dropped, if any is."""
        k, form = self.k, self.form
        if not form.dropout:
            return
        indices = k.grid(*weights.shape)
        key = k.key(self.operands["rng"], form.place)
        drawn = k.uniform(key, k.ravel(indices, weights.shape))
        k.store(out, indices, k.where(k.less(drawn, form.dropout), 0.0, weights[indices]))

    def _results(self, weights: DeviceOperand) -> None:
        """Emit the second product."""
        k, form, V, out = self.k, self.form, self.operands["v"], self.operands["out"]
        *stack, queries, keys = weights.shape
        columns = ordered(V.shape, form.layout.v)[-1]

        def factors(
            batch: tuple[Number, ...], i: Number, j: Number, left: Number, right: Number
        ) -> tuple[Number, Number]:
            return weights[(*batch, i, left)], V[_placed((*batch, right, j), form.layout.v)]

        def store(batch: tuple[Number, ...], i: Number, j: Number, total: Number) -> None:
            k.store(out, ordered((*batch, i, j), form.layout.out), total * form.factor)

        k.contraction(stack, (queries, columns, keys), factors, store)

    def emit_gradients(self) -> None:
        """Emit the gradients by q, k and v, from that of the output."""
        form, layout, operands = self.form, self.form.layout, self.operands
        weights, by_scores = (self._scratch_of_scores() for _ in range(2))
        self._scores(weights)
        self._softmax(weights)
        *stack, queries, keys = weights.shape
        width = ordered(operands["q"].shape, layout.q)[-1]
        columns = ordered(operands["v"].shape, layout.v)[-1]
        upstream = _Matrix(operands["d_out"], layout.from_out)
        self._product(
            (*stack, queries, keys, columns), (upstream, False),
            (_Matrix(operands["v"], layout.v), True), _Matrix(by_scores, ()), form.factor,
        )  # fmt: skip
        self._drop(by_scores, by_scores)
        self._score_gradients(weights, by_scores)
        self._drop(weights, weights)
        scores, by_query = _Matrix(by_scores, ()), (*stack, queries, width, keys)
        by_key, by_value = (*stack, keys, width, queries), (*stack, keys, columns, queries)
        orders = {"d_q": layout.q, "d_k": layout.k, "d_v": layout.v}
        d_q, d_k, d_v = (_Matrix(operands[name], order) for name, order in orders.items())
        key, query = _Matrix(operands["k"], layout.k), _Matrix(operands["q"], layout.q)
        self._product(by_query, (scores, False), (key, False), d_q)
        self._product(by_key, (scores, True), (query, False), d_k)
        self._product(
            by_value, (_Matrix(weights, ()), True), (upstream, False), d_v, form.factor
        )  # fmt: skip

    def _score_gradients(self, weights: DeviceOperand, by_weights: DeviceOperand) -> None:
        """Replace gradients by weights with those by scores."""
        k = self.k
        row, j = k.grid(*weights.shape[:-1]), k.loop(weights.shape[-1])
        weight, gradient = weights[(*row, j)], by_weights[(*row, j)]
        mean = k.sum(weight * gradient, j)
        k.store(by_weights, (*row, j), (gradient - mean) * weight * self.form.scale)

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
