"""`fused_embedding_seq_pool`: embedding lookup, summed by sequence. Reference: its op.h."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from compiler.errors import ShapeError
from compiler.ir.autodiff.grad_ops import NameOf
from compiler.ir.opdef import Slot, attr, reads, reads_lod, writes, writes_rows
from compiler.ir.opdef.attribute_bounds import WIDE, Accepted
from compiler.ir.opdef.composite import Composite, CompositeSteps
from compiler.ir.program import GRAD, OpDesc

_W_ROWS = "W_rows" + GRAD


class EmbeddingPool(Composite):
    """Shared part of the op and its gradient op."""

    combiner = attr("sum", Accepted(choices=("sum",)))
    padding_idx = attr(-1, WIDE)
    is_sparse = attr(False)
    grad_inplace = attr(False)

    def width(self, steps: CompositeSteps) -> int:
        """Return the row size after the lookup of Ids; raise ShapeError unless it is static."""
        table, ids = steps.type("W"), steps.type("Ids")
        size, many = table.shape[-1], ids.shape[-1]
        if table.rank == ids.rank == 2 and isinstance(size, int) and isinstance(many, int):
            return size * many
        shapes = f"{self.kind}: W is {table} and Ids {ids}"
        raise ShapeError(f"{shapes}, expected a known last size of two axes each")

    def rows(self, steps: CompositeSteps) -> tuple[str, str]:
        """Append the lookup and its view with one row per row of Ids; return the names of both."""
        attrs = {"padding_idx": self.padding_idx}
        embedded = steps("lookup_table_v2", attrs, W=steps["W"], Ids=steps["Ids"])
        return embedded, steps("reshape", {"shape": [0, self.width(steps)]}, X=embedded)


class FusedEmbeddingSeqPool(EmbeddingPool, op="fused_embedding_seq_pool"):
    """Out [count, k * size] = the sum over each sequence of Ids [rows, k] looked up in W [n, size].

    Ids equal to `padding_idx` yield zeros.
    """

    lod_source = ""

    W = reads()
    Ids = reads(no_grad=True)
    Ids_lod = reads_lod("Ids")
    Out = writes()

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to a lookup and `sequence_pool`."""
        rows = self.rows(steps)[1]
        steps.write("Out", steps("sequence_pool", {"pooltype": "SUM"}, X=rows))

    def grad_ops(self, op: OpDesc, grad: NameOf) -> list[OpDesc]:
        """Return the reference's dedicated gradient op."""
        arriving = {"Out" + GRAD: [grad(name) for name in op.outputs["Out"]]}
        outputs = {"W" + GRAD: [grad(name) for name in op.inputs["W"]]}
        return [OpDesc(self.kind + "_grad", {**op.inputs, **arriving}, outputs, op.attrs)]


class FusedEmbeddingSeqPoolGrad(EmbeddingPool, op="fused_embedding_seq_pool_grad"):
    """Gradient of W, sparse with `is_sparse`."""

    slots: ClassVar[dict[str, Slot]] = {
        "W": replace(reads(), name="W"),
        "Ids": replace(reads(), name="Ids"),
        "Ids_lod": replace(reads_lod("Ids"), name="Ids_lod"),
        "Out@GRAD": replace(reads(), name="Out@GRAD"),
        "W@GRAD": replace(writes(), name="W@GRAD"),
        _W_ROWS: replace(writes_rows("W@GRAD"), name=_W_ROWS),
    }

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to the gradients of `sequence_pool` and of the lookup, which read only shapes."""
        embedded, rows = self.rows(steps)
        pool = {"X": rows, "Out@GRAD": steps["Out" + GRAD]}
        wanted = {"X" + GRAD: 1}
        spread = steps.outputs("sequence_pool_grad", wanted, {"pooltype": "SUM"}, **pool)
        inputs = {"X": embedded, "Out@GRAD": spread["X" + GRAD]}
        attrs = {"shape": [0, self.width(steps)]}
        viewed = steps.outputs("reshape_grad", wanted, attrs, **inputs)["X" + GRAD]
        attrs = {"padding_idx": self.padding_idx, "is_sparse": self.is_sparse}
        inputs = {"W": steps["W"], "Ids": steps["Ids"], "Out@GRAD": viewed[0]}
        gradients = steps.outputs("lookup_table_v2_grad", {"W" + GRAD: 1}, attrs, **inputs)
        steps.write("W" + GRAD, *gradients["W" + GRAD])
