"""Reductions over the ranks of a ring: `c_allreduce_*`, `c_reduce_*`, `allreduce`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import Slots, attr, reads, reads_rows, writes, writes_rows
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.collective.base import Collective, InPlaceCollective

REDUCTIONS = ("sum", "prod", "max", "min")
"""Reductions indexed by `reduce_type` of `allreduce`."""


def all_reduced(collective: Any, ring: int, name: str, op: str, X: Array) -> Array:
    """Return a copy of X, reduced over all ranks."""
    out = np.array(X)
    collective.all_reduce(ring, name, op, out)
    return out


def reduced(collective: Any, ring: int, name: str, op: str, root: int, X: Array) -> Array:
    """Return a copy of X; on the root it is reduced over all ranks."""
    out = np.array(X)
    collective.reduce(ring, name, op, root, out)
    return out


class AllReduce(InPlaceCollective):
    """Out = X reduced over all ranks of ring `ring_id`, on each of them.

    With `use_calc_stream` it completes before the next op, and is not bucketed. Reference:
    collective/c_allreduce_op.h.
    """

    ring_id = attr(0)
    use_calc_stream = attr(False)
    reduction: ClassVar[str] = "sum"

    def call(self, out: str) -> str:
        arguments = f"{self.ring_id}, {self.variable!r}, {self.reduction!r}, {out}"
        return f"collective.all_reduce({arguments})"


class CAllReduceSum(AllReduce, op="c_allreduce_sum"):
    """The sum over all ranks; sparse gradients are concatenated in rank order."""

    def sparse_variant(self) -> str:
        return "c_allreduce_sum_rows"

    def numpy(self, X: Array) -> dict[str, Array]:
        return {"Out": all_reduced(self.collective, self.ring_id, self.variable, "sum", X)}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        names = {"X": [grad(op.outputs["Out"][0])]}, {"Out": [grad(op.inputs["X"][0])]}
        return [OpDesc("c_allreduce_sum", *names, op.attrs)]


class CAllReduceMax(AllReduce, op="c_allreduce_max"):
    """The maximum over all ranks."""

    reduction = "max"

    def numpy(self, X: Array) -> dict[str, Array]:
        return {"Out": all_reduced(self.collective, self.ring_id, self.variable, "max", X)}


class CAllReduceMin(AllReduce, op="c_allreduce_min"):
    """The minimum over all ranks."""

    reduction = "min"

    def numpy(self, X: Array) -> dict[str, Array]:
        return {"Out": all_reduced(self.collective, self.ring_id, self.variable, "min", X)}


class CAllReduceProd(AllReduce, op="c_allreduce_prod"):
    """The product over all ranks."""

    reduction = "prod"

    def numpy(self, X: Array) -> dict[str, Array]:
        return {"Out": all_reduced(self.collective, self.ring_id, self.variable, "prod", X)}


class CAllReduceSumRows(Collective, op="c_allreduce_sum_rows"):
    """`c_allreduce_sum` of a sparse gradient: Out has the rows of all ranks, in rank order.

    X is [n, …] with n row indices; n may differ between ranks, so the number of rows of Out is
    data-dependent. Not a program op: program conversion replaces `c_allreduce_sum` by it.
    """

    no_kernel_reason = "the number of rows is data-dependent"

    X = reads()
    X_rows = reads_rows("X")
    Out = writes()
    Out_rows = writes_rows("Out")
    ring_id = attr(0)
    use_calc_stream = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        rows = TensorType(DType.INT64, (UNKNOWN,))
        return {"Out": s.X.with_shape((UNKNOWN, *s.X.shape[1:])), "Out_rows": rows}

    def numpy(self, X: Array, X_rows: Array) -> dict[str, Array]:
        arguments = np.ascontiguousarray(X_rows), np.ascontiguousarray(X)
        rows, values = self.collective.all_gather_rows(self.ring_id, self.variable, *arguments)
        return {"Out": values, "Out_rows": rows}


class AllReduceByNumber(InPlaceCollective, op="allreduce"):
    """`c_allreduce_*` over ring 0; `reduce_type` 0 is the sum, 1 prod, 2 max, 3 min.

    `sync_mode` has no effect. Reference: distributed_ops/allreduce_op.cc.
    """

    reduce_type = attr(0)
    sync_mode = attr(False)

    def call(self, out: str) -> str:
        reduction = REDUCTIONS[self.reduce_type]
        return f"collective.all_reduce(0, {self.variable!r}, {reduction!r}, {out})"

    def numpy(self, X: Array) -> dict[str, Array]:
        reduction = REDUCTIONS[self.reduce_type]
        return {"Out": all_reduced(self.collective, 0, self.variable, reduction, X)}


class Reduce(InPlaceCollective):
    """Out = X reduced over all ranks on the rank `root_id`; X on the others.

    Reference: collective/c_reduce_op.h of Paddle 2.0; 1.8.5 has no such op.
    """

    ring_id = attr(0)
    root_id = attr(0)
    use_calc_stream = attr(False)
    reduction: ClassVar[str] = "sum"

    def call(self, out: str) -> str:
        arguments = f"{self.ring_id}, {self.variable!r}, {self.reduction!r}, {self.root_id}, {out}"
        return f"collective.reduce({arguments})"


class CReduceSum(Reduce, op="c_reduce_sum"):
    """The sum, on the root rank."""

    def numpy(self, X: Array) -> dict[str, Array]:
        where = (self.collective, self.ring_id, self.variable)
        return {"Out": reduced(*where, "sum", self.root_id, X)}


class CReduceMax(Reduce, op="c_reduce_max"):
    """The maximum, on the root rank."""

    reduction = "max"

    def numpy(self, X: Array) -> dict[str, Array]:
        where = (self.collective, self.ring_id, self.variable)
        return {"Out": reduced(*where, "max", self.root_id, X)}


class CReduceMin(Reduce, op="c_reduce_min"):
    """The minimum, on the root rank."""

    reduction = "min"

    def numpy(self, X: Array) -> dict[str, Array]:
        where = (self.collective, self.ring_id, self.variable)
        return {"Out": reduced(*where, "min", self.root_id, X)}


class CReduceProd(Reduce, op="c_reduce_prod"):
    """The product, on the root rank."""

    reduction = "prod"

    def numpy(self, X: Array) -> dict[str, Array]:
        where = (self.collective, self.ring_id, self.variable)
        return {"Out": reduced(*where, "prod", self.root_id, X)}
