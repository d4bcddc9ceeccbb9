"""Sums along an axis of all that came before. Reference: cumsum_op.cc, cum_op.h."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.errors import CompileError
from compiler.ir.kernel import DeviceOperand, Lanes
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, TensorType
from compiler.ops.lanes import split_at
from compiler.ops.math.elementwise import gradient_op
from compiler.ops.math.sort import check_axis


def running_sum(X: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Each element the sum of those before it, and of itself unless `exclusive`."""
    turned = np.flip(X, axis) if reverse else X
    total = np.cumsum(turned, axis=axis, dtype=X.dtype)
    if exclusive:
        start = np.zeros_like(np.take(total, [0], axis=axis))
        total = np.concatenate([start, np.delete(total, -1, axis=axis)], axis=axis)
    return np.flip(total, axis) if reverse else total


class Cumsum(OpDef, op="cumsum"):
    """Out = the sums of X along `axis` up to each element, or from the end if `reverse`.

    The element itself does not count if `exclusive`. With `flatten`, of Paddle 2, X counts as one
    row.
    """

    X = reads()
    Out = writes()
    axis = attr(-1)
    exclusive = attr(False)
    reverse = attr(False)
    flatten = attr(False)

    def infer(self, X: TensorType) -> TensorType:
        check_axis(self.kind, X, self.axis)
        return X.with_shape((X.numel,)) if self.flatten else X

    def numpy(self, X: Array) -> Array:
        if self.flatten:
            return running_sum(X.reshape(-1), 0, self.exclusive, self.reverse)
        return running_sum(X, self.axis, self.exclusive, self.reverse)

    def triton(self, k: Lanes, X: DeviceOperand, Out: DeviceOperand) -> None:
        axis = self.axis % X.type.rank
        whole = (1, X.type.numel, 1) if self.flatten else split_at(X.shape, axis)
        i, n, j = k.lanes(*whole)
        r = k.loop(whole[1])
        counts = k.greater(r, n) if self.reverse else k.less(r, n)
        counts = counts if self.exclusive else counts | k.equal(r, n)
        value = X.seen_as(whole).at(i, r, j, where=counts, other=0)
        k.store(Out.seen_as(whole), (i, n, j), k.sum(value, r))

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        if self.flatten:
            raise CompileError("cumsum: no gradient with 'flatten'", hint="reshape X before it")
        attrs = {"axis": self.axis, "exclusive": self.exclusive, "reverse": not self.reverse}
        return [gradient_op("cumsum", op, grad, attrs)]
