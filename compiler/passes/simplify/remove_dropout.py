"""Removes dropout from inference, where it is deterministic."""

from __future__ import annotations

from compiler.ir.graph import Graph, Op
from compiler.passes.base import Context, Fact, Pass, role_of
from compiler.passes.simplify.value_replacement import is_wanted, merge


class RemoveDropout(Pass):
    """dropout(x), inference  =  x, if training upscales; else x * (1 - p).

    The product is a `scale`, which is pointwise and can thus be fused. Dropout remains in training,
    or if its mask is read.
    """

    name = "remove_dropout"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit every dropout once."""
        for op in [op for op in g.ops() if op.kind == "dropout"]:
            if why := _remove(g, op):
                ctx.note_missed(self.name, op, why)


def _remove(g: Graph, op: Op) -> str:
    """Remove a dropout, or return why not."""
    attributes = op.defn.attributes
    if not attributes["is_test"]:
        return "it drops elements at random (training)"
    mask = next(iter(op.outputs.get("Mask", [])), None)
    if mask is not None and is_wanted(g, mask):
        return f"its mask {mask.label!r} is read"
    if attributes["dropout_implementation"] == "upscale_in_train":
        return merge(g, op, op["Out"], op["X"])
    factor = {"scale": 1.0 - attributes["dropout_prob"]}
    g.replace(op, "scale", {"X": op.inputs["X"]}, {"Out": op.outputs["Out"]}, factor | role_of(op))
    return ""
