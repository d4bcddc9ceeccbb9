"""Collectives that only move data: broadcast, gather, scatter, barrier."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import Slots, attr, reads, required, writes
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, TensorType
from compiler.ops.collective.base import Collective, InPlaceCollective, expect_rows, rows_per_rank


class CBroadcast(InPlaceCollective, op="c_broadcast"):
    """Out = X of the rank `root`, on each rank of ring `ring_id`.

    `use_calc_stream` has no effect. Reference: collective/c_broadcast_op.cc.
    """

    root = attr(0)
    ring_id = attr(0)
    use_calc_stream = attr(False)

    def call(self, out: str) -> str:
        return f"collective.broadcast({self.ring_id}, {self.variable!r}, {self.root}, {out})"

    def numpy(self, X: Array) -> dict[str, Array]:
        out = np.array(X)
        self.collective.broadcast(self.ring_id, self.variable, self.root, out)
        return {"Out": out}


class Broadcast(InPlaceCollective, op="broadcast"):
    """`c_broadcast` over ring 0; `sync_mode` has no effect.

    Reference: distributed_ops/broadcast_op.cc.
    """

    root = attr(0)
    sync_mode = attr(False)

    def call(self, out: str) -> str:
        return f"collective.broadcast(0, {self.variable!r}, {self.root}, {out})"

    def numpy(self, X: Array) -> dict[str, Array]:
        out = np.array(X)
        self.collective.broadcast(0, self.variable, self.root, out)
        return {"Out": out}


class Barrier(InPlaceCollective, op="barrier"):
    """Out = X, after all ranks of ring `ring_id` have arrived.

    Reference: collective/barrier_op.cc of Paddle 2.0; 1.8.5 has no such op.
    """

    ring_id = attr(0)

    def call(self, out: str) -> str:
        return f"collective.barrier({self.ring_id}, {self.variable!r})"

    def numpy(self, X: Array) -> dict[str, Array]:
        self.collective.barrier(self.ring_id, self.variable)
        return {"Out": X}


class ResizingCollective(Collective):
    """A collective whose result has a different number of rows than X."""

    X = reads()
    Out = writes()

    def call(self, given: str) -> str:
        """Return source text of the `collective` call that returns the result."""
        raise NotImplementedError

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Out = s.X, s.Out
        k.line(f"np.copyto({Out}, {self.call(str(X))})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Out = s.X, s.Out
        k.line(f"{Out}.copy_({self.call(str(X))})")


class CAllGather(ResizingCollective, op="c_allgather"):
    """Out [nranks·n, …] = X [n, …] of all `nranks` ranks of ring `ring_id`, in rank order.

    `use_calc_stream` has no effect. Reference: collective/c_allgather_op.cc.
    """

    ring_id = attr(0)
    use_calc_stream = attr(False)
    nranks = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        if X.rank == 0 or self.nranks < 1:
            raise ShapeError(
                f"c_allgather: X is {X}, nranks {self.nranks}; expected rank and nranks >= 1"
            )
        return {"Out": X.with_shape((X.shape[0] * self.nranks, *X.shape[1:]))}

    def call(self, given: str) -> str:
        return f"collective.all_gather({self.ring_id}, {self.variable!r}, {given})"

    def numpy(self, X: Array) -> dict[str, Array]:
        contiguous = np.ascontiguousarray(X)
        gathered = self.collective.all_gather(self.ring_id, self.variable, contiguous)
        return {"Out": expect_rows("c_allgather", gathered, len(X) * self.nranks, self.nranks)}

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        names = {"X": [grad(op.outputs["Out"][0])]}, {"Out": [grad(op.inputs["X"][0])]}
        return [OpDesc("c_reducescatter", *names, op.attrs)]


class CReduceScatter(ResizingCollective, op="c_reducescatter"):
    """Out [n / nranks, …] = this rank's rows of the sum of X [n, …] over all ranks.

    `use_calc_stream` has no effect. Reference: collective/c_reducescatter_op.cc.
    """

    ring_id = attr(0)
    use_calc_stream = attr(False)
    nranks = attr(1)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Out": rows_per_rank("c_reducescatter", s.X, self.nranks)}

    def call(self, given: str) -> str:
        where = f"{self.ring_id}, {self.variable!r}, 'sum'"
        return f"collective.reduce_scatter({where}, {given})"

    def numpy(self, X: Array) -> dict[str, Array]:
        contiguous = np.ascontiguousarray(X)
        reduced = self.collective.reduce_scatter(self.ring_id, self.variable, "sum", contiguous)
        return {"Out": expect_rows("c_reducescatter", reduced, len(X) // self.nranks, self.nranks)}


class CScatter(ResizingCollective, op="c_scatter"):
    """Out [n / nranks, …] = this rank's rows of X [n, …] of the rank `root`.

    Reference: collective/c_scatter_op.cc of Paddle 2.0; 1.8.5 has no such op.
    """

    ring_id = attr(0)
    root = attr(0)
    nranks = attr(1)
    use_calc_stream = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Out": rows_per_rank("c_scatter", s.X, self.nranks)}

    def call(self, given: str) -> str:
        where = f"{self.ring_id}, {self.variable!r}, {self.root}"
        return f"collective.scatter({where}, {given})"

    def numpy(self, X: Array) -> dict[str, Array]:
        contiguous = np.ascontiguousarray(X)
        received = self.collective.scatter(self.ring_id, self.variable, self.root, contiguous)
        return {"Out": expect_rows("c_scatter", received, len(X) // self.nranks, self.nranks)}
