"""Rewrites a trained batch norm that no layer absorbs as a product and a sum, which fuse with
others.
"""

from __future__ import annotations

from compiler.ir.graph import Graph, Op
from compiler.passes.base import Context, Fact, Pass, role_of
from compiler.passes.fusion.fuse_batch_norm import known_factor, statistics_obstacle
from compiler.passes.norm_folding import NORMS, VECTORS, is_frozen, norm_axis
from compiler.passes.state import add_state, state_obstacle


class SplitBatchNorm(Pass):
    """(x - mean) * k + shift  =  x * k + (shift - mean * k), k = scale / sqrt(variance + epsilon).

    Both vectors are new state, `scale@bn` and `bias@bn` in `ctx.params`. The sum and the product
    are pointwise, so they share a kernel with each other and with a following activation. Batch
    norms of training are skipped.
    """

    name = "split_batch_norm"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit every batch norm once."""
        for norm in [op for op in g.ops() if op.kind in NORMS]:
            if not is_frozen(norm.defn.attributes):
                continue
            if why := _obstacle(g, norm, ctx):
                ctx.note_missed(self.name, norm, why)
                continue
            _split(g, norm, ctx)


def _obstacle(g: Graph, norm: Op, ctx: Context) -> str:
    """Return why a batch norm must remain; empty if it need not."""
    vectors = [norm[slot] for slot in VECTORS]
    return statistics_obstacle(g, norm) or state_obstacle(g, vectors, norm, ctx)


def _split(g: Graph, norm: Op, ctx: Context) -> None:
    x, y = norm["X"], norm["Y"]
    factor, shift = known_factor(norm, ctx)
    k = add_state(g, norm["Scale"].name + "@bn", factor, x.type.dtype, ctx)
    b = add_state(g, norm["Bias"].name + "@bn", shift, x.type.dtype, ctx)
    attrs = {"axis": norm_axis(norm.defn.attributes, x.type.rank)} | role_of(norm)
    scaled = g.fresh(y.name + ".scaled", y.type)
    product = {"X": [x], "Y": [k]}, {"Out": [scaled]}
    total = {"X": [scaled], "Y": [b]}, {"Out": [y]}
    g.remove(norm)
    g.op("elementwise_mul", *product, attrs, norm.source, place=norm.position)
    g.op("elementwise_add", *total, attrs, norm.source, place=norm.position)
