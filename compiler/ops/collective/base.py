"""Base classes of collective ops: ordering, ring, and the object that executes them."""

from __future__ import annotations

from typing import Any, ClassVar

from compiler.errors import ShapeError
from compiler.ir.opdef import HostOp, Slots, attr, reads, reads_token, writes, writes_token
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, TensorType
from compiler.ops.collective.single_rank import SingleRank


class Collective(HostOp):
    """An op that every rank of a ring must run, in the same order as all other collectives.

    `Before` and `After` are tokens that chain the collectives of a block in program order.
    `variable` is the variable's name in the program, for messages and for the schedule that ranks
    compare; program conversion sets it.
    """

    lod_source = "X"

    variable = attr("")
    Before = reads_token()
    After = writes_token()
    collective: ClassVar[Any] = SingleRank()


class InPlaceCollective(Collective):
    """A collective that updates X in place: Out has the type of X, and may alias it."""

    X = reads()
    Out = writes(inplace="X")

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Out": s.X}

    def call(self, out: str) -> str:
        """Return source text of the `collective` call that updates an array in place."""
        raise NotImplementedError

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Out = s.X, s.Out
        if not k.aliased(X, Out):
            k.line(f"np.copyto({Out}, {X})")
        k.line(self.call(str(Out)))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Out = s.X, s.Out
        if not k.aliased(X, Out):
            k.line(f"{Out}.copy_({X})")
        k.line(self.call(str(Out)))


def rows_per_rank(kind: str, X: TensorType, ranks: int) -> TensorType:
    """Return the type of one rank's rows of X; raise ShapeError if they are not divisible."""
    rows = X.shape[0] if X.rank else 0
    if X.rank == 0 or ranks < 1 or (isinstance(rows, int) and rows % ranks):
        raise ShapeError(f"{kind}: X is {X}, expected a number of rows divisible by nranks={ranks}")
    return X.with_shape((rows // ranks, *X.shape[1:]))


def expect_rows(kind: str, found: Array, rows: int, ranks: int) -> Array:
    """Return the result of a gather or scatter; raise ValueError for another ring size."""
    if len(found) != rows:
        raise ValueError(
            f"{kind}: nranks={ranks} requires {rows} rows, but the ring returned {len(found)};  "
            "nranks must be the number of ranks in the ring"
        )
    return found
