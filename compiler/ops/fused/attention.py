"""Attention as one op, which the compiler makes of products and a softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.attention import AttentionForm, AttentionLayout, ordered
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots
from compiler.ir.philox import uniform_by_key
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.fused.attention_kernels import SeparateKernels
from compiler.ops.shape.dropout import keep_scale
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, shown


class Attention(OpDef, op="scaled_dot_product_attention"):
    """Out = factor * dropout(softmax(scale * Q @ Kᵀ + Mask)) @ V, for each matrix of a stack.

    Q, K and V are stacks of matrices in the order of `q_axes`, `k_axes` and `v_axes`: their axes in
    this order are [stack…, queries, width], [stack…, keys, width] and [stack…, keys, columns]. Out
    is [stack…, queries, columns], transposed by `out_axes`. Mask broadcasts, from the last axis on,
    to [stack…, queries, keys]; it may be float32 if the others are in half precision, in which
    scores are float32 too. With `is_causal` a query has no weight for later keys. The softmax is
    that of the op `softmax`, the dropout that of `dropout_by_key` with Key and `place`.

    Statistics is float32 [2, stack…, queries], from which gradients compute the softmax again: the
    maximum of each row of scores times log2(e), and the row's sum of exponentials relative to it.
    Programs do not name this op.
    """

    Q = reads()
    K = reads()
    V = reads()
    Mask = reads(optional=True, no_grad=True)
    Key = reads(optional=True, no_grad=True)
    Out = writes()
    Statistics = writes(optional=True)
    scale = attr(1.0)
    factor = attr(1.0)
    is_causal = attr(False)
    dropout_prob = attr(0.0)
    dropout_implementation = attr("downgrade_in_infer")
    place = attr(0)
    q_axes = attr([0, 1, 2])
    k_axes = attr([0, 1, 2])
    v_axes = attr([0, 1, 2])
    out_axes = attr([0, 1, 2])

    @property
    def layout(self) -> AttentionLayout:
        """The orders of the operands' axes."""
        orders = self.q_axes, self.k_axes, self.v_axes, self.out_axes
        return AttentionLayout(*map(tuple, orders))

    @property
    def form(self) -> AttentionForm:
        """What it computes, for kernels."""
        factor = self.factor
        if self.dropout_prob:
            factor *= keep_scale(self.dropout_prob, self.dropout_implementation, False)
        return AttentionForm(
            self.layout, self.scale, factor, self.is_causal, self.dropout_prob, self.place
        )

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Q, K, V, Mask = s.Q, s.K, s.V, s.get("Mask")
        require_same_dtype(self.kind, Q=Q, K=K, V=V)
        if Mask is not None:
            require_dtype(self.kind, "Mask", Mask, Q.dtype, DType.FP32)
        if self.dropout_prob and s.get("Key") is None:
            raise BadAttribute(f"{self.kind}: 'dropout_prob' is {self.dropout_prob} without a Key")
        self._require_orders(Q.rank, K.rank, V.rank)
        q, k, v = self._matrices(Q.shape, K.shape, V.shape)
        pairs = [*zip(q[:-2], k[:-2], strict=True), *zip(k[:-1], v[:-1], strict=True)]
        if any(differ(a, b) for a, b in [*pairs, (q[-1], k[-1])]):
            raise ShapeError(f"{self.kind}: {shown(Q=Q, K=K, V=V)} do not fit")
        if Mask is not None and not _broadcasts(Mask.shape, (*q[:-1], k[-2])):
            raise ShapeError(f"{self.kind}: {shown(Q=Q, K=K, Mask=Mask)} do not fit")
        if self.is_causal and differ(q[-2], k[-2]):
            raise ShapeError(f"{self.kind}: {shown(Q=Q, K=K)} have different lengths, is_causal")
        Out = Q.with_shape(self.layout.result(Q.shape, K.shape, V.shape))
        return {"Out": Out, "Statistics": TensorType(DType.FP32, (2, *q[:-1]))}

    def _require_orders(self, *ranks: int) -> None:
        """Raise BadAttribute unless each order names every axis of its operand once."""
        orders = self.q_axes, self.k_axes, self.v_axes, self.out_axes
        for order, rank in zip(orders, (*ranks, ranks[0]), strict=True):
            if rank < 2 or sorted(order) != [*range(ranks[0])] or rank != ranks[0]:
                raise BadAttribute(f"{self.kind}: {order} is no order of {rank} axes, 2 or more")

    def _matrices(self, Q: Shape, K: Shape, V: Shape) -> tuple[Shape, Shape, Shape]:
        """Return the shapes of the stacks of matrices."""
        return ordered(Q, self.q_axes), ordered(K, self.k_axes), ordered(V, self.v_axes)

    def multiplications(self, shapes: Mapping[str, Shape]) -> Size:
        """Return the number of multiplications of both products, from the shapes of Q, K and V."""
        q, k, v = self._matrices(shapes["Q"], shapes["K"], shapes["V"])
        return product([*q[:-1], k[-2], q[-1] + v[-1]])

    def numpy(
        self, Q: Array, K: Array, V: Array, Mask: Array | None = None, Key: Array | None = None
    ) -> dict[str, Array]:
        dtype = np.dtype(np.float32) if Q.dtype.itemsize == 2 else Q.dtype
        query, key, value = (
            np.transpose(array, axes).astype(dtype)
            for array, axes in ((Q, self.q_axes), (K, self.k_axes), (V, self.v_axes))
        )
        scores = scores_of(query, key, Mask, self.scale, self.is_causal)
        weights = softmax_of_scores(scores)
        if self.dropout_prob:
            weights = weights * factors_of_weights(
                Key, self.place, weights.shape, self.dropout_prob, self.dropout_implementation
            )
        mixed = np.transpose(np.matmul(weights, value) * self.factor, self.out_axes)
        return {"Out": mixed.astype(Q.dtype), "Statistics": statistics_of(scores)}

    def grad(
        self, Q: Array, K: Array, V: Array, Mask: Array | None, Key: Array | None, Out: Array,
        Statistics: Array | None, d_Out: Array,
    ) -> dict[str, Array]:  # fmt: skip
        orders = (self.q_axes, self.k_axes, self.v_axes, np.argsort(self.out_axes))
        query, key, value, upstream = (
            np.transpose(array, axes) for array, axes in zip((Q, K, V, d_Out), orders, strict=True)
        )
        weights = softmax_of_scores(scores_of(query, key, Mask, self.scale, self.is_causal))
        by_weights = np.matmul(upstream * self.factor, value.swapaxes(-1, -2))
        dropped = weights
        if self.dropout_prob:
            factors = factors_of_weights(
                Key, self.place, weights.shape, self.dropout_prob, self.dropout_implementation
            )
            by_weights, dropped = by_weights * factors, weights * factors
        means = np.transpose(Out * d_Out, orders[3]).sum(axis=-1, keepdims=True)
        by_scores = (by_weights - means) * weights * self.scale
        gradients = {
            "Q": np.matmul(by_scores, key),
            "K": np.matmul(by_scores.swapaxes(-1, -2), query),
            "V": np.matmul(dropped.swapaxes(-1, -2), upstream * self.factor),
        }
        return {
            slot: np.transpose(gradient, np.argsort(order)).astype(Q.dtype)
            for (slot, gradient), order in zip(gradients.items(), orders, strict=False)
        }

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        operands = self._operands(s) | {"out": s.Out}
        if (statistics := s.get("Statistics")) is not None:
            operands["statistics"] = statistics
        if not k.attention(self.form, operands):
            SeparateKernels(k, self.form, operands).emit()

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        operands = self._operands(s) | {"out": s.Out, "d_out": s.d_Out}
        if (statistics := s.get("Statistics")) is not None:
            operands["statistics"] = statistics
        gradients = {"q": s.get("d_Q"), "k": s.get("d_K"), "v": s.get("d_V")}
        for name, wanted in gradients.items():
            own = operands[name]
            operands[f"d_{name}"] = (
                k.scratch(own.shape, own.type.dtype) if wanted is None else wanted
            )
        if not k.attention_gradient(self.form, operands):
            SeparateKernels(k, self.form, operands).emit_gradients()

    def _operands(self, s: KernelSlots) -> dict[str, DeviceOperand]:
        """Return the inputs by the names that kernels have for them."""
        slots = {"q": s.Q, "k": s.K, "v": s.V, "mask": s.get("Mask"), "rng": s.get("Key")}
        return {name: operand for name, operand in slots.items() if operand is not None}


def scores_of(query: Array, key: Array, mask: Array | None, scale: float, is_causal: bool) -> Array:
    """Return scale * query @ keyᵀ + mask; -inf for keys after a query, if `is_causal`."""
    scores = np.matmul(query, key.swapaxes(-1, -2)) * scale
    if mask is not None:
        scores = scores + mask.astype(scores.dtype)
    if is_causal:
        later: Array = np.triu(np.ones(scores.shape[-2:], bool), 1)
        scores[..., later] = -np.inf
    return scores


def softmax_of_scores(scores: Array) -> Array:
    """Return the softmax of rows, as the op `softmax` does."""
    powers = np.exp(np.maximum(scores - scores.max(axis=-1, keepdims=True), -64.0))
    return powers / powers.sum(axis=-1, keepdims=True)


def statistics_of(scores: Array) -> Array:
    """Return the maximum of each row times log2(e), and its sum of exponentials: float32."""
    largest = scores.max(axis=-1, keepdims=True)
    sums = np.exp(scores - largest).sum(axis=-1)
    return np.stack([largest[..., 0] * 1.4426950408889634, sums]).astype(np.float32)


def factors_of_weights(
    Key: Array | None, place: int, shape: Sequence[int], probability: float, implementation: str
) -> Array:
    """Return what dropout multiplies weights by, as the op `dropout_by_key` does."""
    assert Key is not None
    kept = uniform_by_key(Key, place, shape) >= np.float32(probability)
    return kept * np.float32(keep_scale(probability, implementation, False))


def _broadcasts(mask: Shape, scores: Shape) -> bool:
    """Return whether a mask fits the last axes of scores, with sizes of 1 where it is repeated."""
    pairs = zip(reversed(mask), reversed(scores), strict=False)
    return len(mask) <= len(scores) and not any(a != 1 and differ(a, b) for a, b in pairs)
