"""Sizes in attributes that tensors replace at run time: only constants among them are known."""

from __future__ import annotations

from typing import Any

from compiler.ir.conversion.companions import Slots
from compiler.ir.graph import Graph, Var
from compiler.ir.opdef import find


def with_known_sizes(
    kind: str, attrs: dict[str, Any], inputs: Slots, graph: Graph
) -> dict[str, Any]:
    """Return the attributes of an op; -1 for sizes that its tensors may replace by others.

    A size remains where the tensor in its place is a constant of that value, as layers record the
    integers of a list that holds variables too.
    """
    for slot, name in find(kind).overridden_sizes.items():
        if vars := inputs.get(slot, []):
            sizes, values = attrs.get(name, []), [_constant(var, graph) for var in vars]
            pairs = zip(sizes, [*values, *[None] * len(sizes)], strict=False)
            attrs = attrs | {name: [size if size == value else -1 for size, value in pairs]}
    return attrs


def _constant(var: Var, graph: Graph) -> int | None:
    """Return the number that a var of one element is filled with; None if it is unknown."""
    op = graph.producer(var)
    if op is None or op.kind != "fill_constant" or op.inputs or var.type.numel != 1:
        return None
    value = float(op.attrs.get("str_value") or op.attrs.get("value", 0.0))
    return int(value) if value.is_integer() else None
