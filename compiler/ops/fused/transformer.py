"""Fused transformer ops, written by Paddle's GPU passes.

Reference: skip_layernorm_op.cc, multihead_matmul_op.cc, fused_embedding_eltwise_layernorm_op.cc.
"""

from __future__ import annotations

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import attr, reads, writes
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.opdef.composite import Composite, CompositeSteps
from compiler.ops.fused.fully_connected import flat

AT_LEAST_1 = Accepted(low=1)


class SkipLayernorm(Composite, op="skip_layernorm"):
    """Out = layer_norm(X + Y, Scale, Bias), normalised over the axes from `begin_norm_axis`."""

    X = reads()
    Y = reads()
    Scale = reads()
    Bias = reads()
    Out = writes()
    epsilon = attr(1e-5)
    begin_norm_axis = attr(1)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to an addition and `layer_norm`."""
        added = steps("elementwise_add", X=steps["X"], Y=steps["Y"])
        attrs = {"epsilon": self.epsilon, "begin_norm_axis": self.begin_norm_axis}
        steps.write("Out", steps("layer_norm", attrs, X=added, **steps.given("Scale", "Bias")))


class FusedEmbeddingEltwiseLayernorm(Composite, op="fused_embedding_eltwise_layernorm"):
    """Out [batch, length, width] = layer_norm(the sum of the lookups of Ids in the tables Embs)."""

    Ids = reads(many=True, no_grad=True)
    Embs = reads(many=True)
    Bias = reads()
    Scale = reads()
    Out = writes()
    epsilon = attr(1e-5)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to lookups, a sum and `layer_norm` over the last axis."""
        ids, tables = steps.all("Ids"), steps.all("Embs")
        if len(ids) != len(tables):
            counts = f"{len(ids)} Ids and {len(tables)} Embs"
            raise BadAttribute(f"{self.kind}: there are {counts}, expected equal counts")
        embedded = [self.rows(steps, index) for index in range(len(ids))]
        added = steps("sum", X=embedded)
        rank = steps.type("Ids").rank + (not self.is_column(steps, 0))
        attrs = {"epsilon": self.epsilon, "begin_norm_axis": rank - 1}
        steps.write("Out", steps("layer_norm", attrs, X=added, **steps.given("Scale", "Bias")))

    def rows(self, steps: CompositeSteps, index: int) -> str:
        """Append one lookup; a last axis of size 1 of Ids is ignored."""
        kind = "lookup_table" if self.is_column(steps, index) else "lookup_table_v2"
        return steps(kind, W=steps.all("Embs")[index], Ids=steps.all("Ids")[index])

    def is_column(self, steps: CompositeSteps, index: int) -> bool:
        """Return whether the last axis of Ids has size 1; raise ShapeError if it is unknown."""
        ids = steps.type("Ids", index)
        if not ids.shape or not isinstance(ids.shape[-1], int):
            raise ShapeError(f"{self.kind}: Ids are {ids}, expected a known last size")
        return ids.shape[-1] == 1


class MultiheadMatmul(Composite, op="multihead_matmul"):
    """Out = softmax(alpha * Q @ Kᵀ + BiasQK) @ V for each head, Q, K and V = Input @ W + Bias.

    Input is [batch, length, hidden], W [hidden, 3, width], Bias [3, width], BiasQK broadcasts to
    [batch, heads, length, length], Out is [batch, length, width].
    """

    Input = reads()
    W = reads()
    Bias = reads()
    BiasQK = reads(optional=True)
    Out = writes()
    transpose_Q = attr(False)
    transpose_K = attr(True)
    transpose_V = attr(False)
    alpha = attr(1.0)
    head_number = attr(1, AT_LEAST_1)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to matmuls batched over heads, with `softmax` between them."""
        query, key, value = self.projected(steps)
        attrs = {"transpose_Y": True, "alpha": self.alpha}
        scores = steps("matmul", attrs, X=query, Y=key)
        if steps.has("BiasQK"):
            scores = steps("elementwise_add", X=scores, Y=steps["BiasQK"])
        mixed = steps("matmul", X=steps("softmax", {"axis": -1}, X=scores), Y=value)
        by_place = steps("transpose", {"axis": [0, 2, 1, 3]}, X=mixed)
        steps.write("Out", steps("reshape", {"shape": [0, 0, self.width(steps)]}, X=by_place))

    def projected(self, steps: CompositeSteps) -> list[str]:
        """Append Q, K and V [batch, heads, length, size]; return their names."""
        width, hidden = self.width(steps), steps.type("W").shape[0]
        weight = steps("reshape", {"shape": [hidden, 3 * width]}, X=steps["W"])
        product = steps("mul", {"x_num_col_dims": 2}, X=steps["Input"], Y=weight)
        added = steps("elementwise_add", X=product, Y=flat(steps, steps["Bias"]))
        shape = [0, 0, 3, self.head_number, width // self.head_number]
        heads = steps("reshape", {"shape": shape}, X=added)
        parts = steps("transpose", {"axis": [2, 0, 3, 1, 4]}, X=heads)
        cuts = [
            {"axes": [0], "starts": [i], "ends": [i + 1], "decrease_axis": [0]} for i in range(3)
        ]
        return [steps("slice", cut, Input=parts) for cut in cuts]

    def width(self, steps: CompositeSteps) -> int:
        """Return the width of Q, K and V; raise ShapeError unless the heads divide it."""
        columns = product(steps.type("W").shape[1:])
        if not isinstance(columns, int) or columns % (3 * self.head_number):
            raise ShapeError(
                f"{self.kind}: W is {steps.type('W')}, expected a known multiple of "
                f"{3 * self.head_number} columns for {self.head_number} heads"
            )
        return columns // 3
