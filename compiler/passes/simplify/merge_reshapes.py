"""Merges consecutive reshapes, and removes those that cancel."""

from __future__ import annotations

from compiler.ir.dims import Size
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef.attribute_bounds import MAX_INT
from compiler.ir.types import Shape
from compiler.passes.base import Context, Fact, Pass, role_of
from compiler.passes.simplify.value_replacement import is_wanted, merge, remove_if_unused

_RESHAPES = frozenset(
    "reshape reshape2 flatten flatten2 squeeze squeeze2 unsqueeze unsqueeze2"
    " flatten_contiguous_range".split()
)
"""Ops that keep the elements of X in their order."""


class MergeReshapes(Pass):
    """(x in shape a) in shape b  =  x in shape b; x itself, if that is its own shape.

    Squeezes, flattenings and the like are reshapes too. An intermediate shape with other readers
    remains; merging would then gain nothing, unless the second reshape restores the original shape.
    """

    name = "merge_reshapes"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Visit the ops in order, so that three consecutive ones become one."""
        for op in [op for op in g.ops() if op.kind in _RESHAPES]:
            below = g.producer(op["X"])
            if below is None or below.kind not in _RESHAPES:
                continue
            if why := _merge(g, op, below):
                ctx.note_missed(self.name, op, why)


def _merge(g: Graph, op: Op, below: Op) -> str:
    """Replace two consecutive ops by one, or return why not."""
    x, between, out = below["X"], op["X"], op["Out"]
    if any(var.type.is_open for var in (x, between, out)):
        return "its sizes are data-dependent"
    if any(is_wanted(g, var) for var in op.outputs.get("XShape", [])):
        return "its gradient needs the intermediate shape"
    if g.overwriter(x) is not None:
        return f"{x.label!r} is overwritten later"
    if x.type == out.type:
        why = merge(g, op, out, x)
        remove_if_unused(g, below)
        return why
    if g.readers(between) != [op] or between in g.results:
        return f"{between.label!r} has other readers"
    why = _reshape(g, op, x, out)
    remove_if_unused(g, below)
    return why


def _reshape(g: Graph, op: Op, x: Var, out: Var) -> str:
    """Compute `out` from x by one reshape, if its attributes can express the shape."""
    sizes = _shape_attribute(x.type.shape, out.type.shape)
    if sizes.count(-1) > 1:
        return f"the shape attribute cannot express {out!r}"
    attrs = {"shape": sizes} | role_of(op)
    g.replace(op, "reshape", {"X": [x]}, {"Out": [out]}, attrs)
    return ""


def _shape_attribute(given: Shape, wanted: Shape) -> list[int]:
    """Return the `shape` attribute of `reshape`: 0 for an unchanged size, -1 for one that is
    symbolic, or larger than an attribute.
    """
    before: list[Size | None] = [*given, *[None] * len(wanted)]
    return [
        size if isinstance(size, int) and size <= MAX_INT else 0 if size == before[axis] else -1
        for axis, size in enumerate(wanted)
    ]
