"""Attention as one op, which the compiler makes of products and a softmax."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.attention import AttentionLayout, ordered
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.fused.attention_kernels import SeparateKernels
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, shown


class Attention(OpDef, op="scaled_dot_product_attention"):
    """Out = factor * softmax(scale * Q @ Kᵀ + Mask) @ V, for each matrix of a stack.

    Q, K and V are stacks of matrices in the order of `q_axes`, `k_axes` and `v_axes`: their axes in
    this order are [stack…, queries, width], [stack…, keys, width] and [stack…, keys, columns]. Out
    is [stack…, queries, columns], transposed by `out_axes`. Mask broadcasts, from the last axis on,
    to [stack…, queries, keys]; it may be float32 if the others are in half precision, in which
    scores are float32 too. The softmax is that of the op `softmax`. Programs do not name this
    op.
    """

    Q = reads()
    K = reads()
    V = reads()
    Mask = reads(optional=True, no_grad=True)
    Out = writes()
    scale = attr(1.0)
    factor = attr(1.0)
    q_axes = attr([0, 1, 2])
    k_axes = attr([0, 1, 2])
    v_axes = attr([0, 1, 2])
    out_axes = attr([0, 1, 2])

    @property
    def layout(self) -> AttentionLayout:
        """The orders of the operands' axes."""
        orders = self.q_axes, self.k_axes, self.v_axes, self.out_axes
        return AttentionLayout(*map(tuple, orders))

    def infer(self, s: Slots[TensorType]) -> TensorType:
        Q, K, V, Mask = s.Q, s.K, s.V, s.get("Mask")
        require_same_dtype(self.kind, Q=Q, K=K, V=V)
        if Mask is not None:
            require_dtype(self.kind, "Mask", Mask, Q.dtype, DType.FP32)
        self._require_orders(Q.rank, K.rank, V.rank)
        q, k, v = self._matrices(Q.shape, K.shape, V.shape)
        pairs = [*zip(q[:-2], k[:-2], strict=True), *zip(k[:-1], v[:-1], strict=True)]
        if any(differ(a, b) for a, b in [*pairs, (q[-1], k[-1])]):
            raise ShapeError(f"{self.kind}: {shown(Q=Q, K=K, V=V)} do not fit")
        if Mask is not None and not _broadcasts(Mask.shape, (*q[:-1], k[-2])):
            raise ShapeError(f"{self.kind}: {shown(Q=Q, K=K, Mask=Mask)} do not fit")
        return Q.with_shape(self.layout.result(Q.shape, K.shape, V.shape))

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

    def numpy(self, Q: Array, K: Array, V: Array, Mask: Array | None = None) -> Array:
        dtype = np.dtype(np.float32) if Q.dtype.itemsize == 2 else Q.dtype
        query, key, value = (
            np.transpose(array, axes).astype(dtype)
            for array, axes in ((Q, self.q_axes), (K, self.k_axes), (V, self.v_axes))
        )
        mixed = np.matmul(softmax_of_scores(query, key, Mask, self.scale), value) * self.factor
        return np.transpose(mixed, self.out_axes).astype(Q.dtype)

    def grad(
        self, Q: Array, K: Array, V: Array, Mask: Array | None, d_Out: Array
    ) -> dict[str, Array]:
        orders = (self.q_axes, self.k_axes, self.v_axes, np.argsort(self.out_axes))
        query, key, value, upstream = (
            np.transpose(array, axes) for array, axes in zip((Q, K, V, d_Out), orders, strict=True)
        )
        weights = softmax_of_scores(query, key, Mask, self.scale)
        upstream = upstream * self.factor
        by_weights = np.matmul(upstream, value.swapaxes(-1, -2))
        means = (by_weights * weights).sum(axis=-1, keepdims=True)
        by_scores = (by_weights - means) * weights * self.scale
        gradients = {
            "Q": np.matmul(by_scores, key),
            "K": np.matmul(by_scores.swapaxes(-1, -2), query),
            "V": np.matmul(weights.swapaxes(-1, -2), upstream),
        }
        return {
            slot: np.transpose(gradient, np.argsort(order)).astype(Q.dtype)
            for (slot, gradient), order in zip(gradients.items(), orders, strict=False)
        }

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Q, K, V, Mask, Out = s.Q, s.K, s.V, s.get("Mask"), s.Out
        if not k.attention(self.layout, (self.scale, self.factor), (Q, K, V), Mask, Out):
            SeparateKernels(k, self.layout).emit((self.scale, self.factor), (Q, K, V), Mask, Out)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        Q, K, V, Mask, d_Out = s.Q, s.K, s.V, s.get("Mask"), s.d_Out
        asked = (s.get("d_Q"), s.get("d_K"), s.get("d_V"))
        results = tuple(
            k.scratch(x.shape, x.type.dtype) if result is None else result
            for x, result in zip((Q, K, V), asked, strict=True)
        )
        factors, operands = (self.scale, self.factor), (Q, K, V)
        if not k.attention_gradient(self.layout, factors, operands, Mask, d_Out, results):
            separate = SeparateKernels(k, self.layout)
            separate.emit_gradients(factors, operands, Mask, d_Out, results)


def softmax_of_scores(query: Array, key: Array, mask: Array | None, scale: float) -> Array:
    """Return softmax(scale * query @ keyᵀ + mask)."""
    scores = np.matmul(query, key.swapaxes(-1, -2)) * scale
    if mask is not None:
        scores = scores + mask.astype(scores.dtype)
    powers = np.exp(np.maximum(scores - scores.max(axis=-1, keepdims=True), -64.0))
    return powers / powers.sum(axis=-1, keepdims=True)


def _broadcasts(mask: Shape, scores: Shape) -> bool:
    """Return whether a mask fits the last axes of scores, with sizes of 1 where it is repeated."""
    pairs = zip(reversed(mask), reversed(scores), strict=False)
    return len(mask) <= len(scores) and not any(a != 1 and differ(a, b) for a, b in pairs)
