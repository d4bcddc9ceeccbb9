"""Channels-last layout: images are permuted at the edges of the graph only.

A device reads images as matrices whose rows are channels: contiguous channels make long contiguous
tile loads. Which ops use channels-last is chosen to minimise bytes: a convolution that keeps the
original layout reads its images one extra time; an image written in one layout and read in the
other costs a transpose, one read and one write. That is a minimum cut, found exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef.layout_rules import PermutedOp, channels_last
from compiler.lazy_loading import load
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.device.permuted_values import Twins, can_be_seen, images_of, is_free
from compiler.passes.memory.schedules import nbytes

RANKS = (4, 5)
"""Ranks of batches of images and of volumes."""

_TURNED, _WRITTEN = "turned", "as written"

_Node: TypeAlias = "Op | str | tuple[str, Var]"
"""A node of the cut: an op, one of the two layouts, or a transposed image."""


class Layout(Pass):
    """y = conv(x, w)  =  x' = transpose(x); y' = conv(x', w, NHWC); y = transpose(y').

    Vars keep their names and axes; channels-last ops read permuted copies of them, so most
    transposes have no readers and are removed. Filters keep their layout; constant ones are
    transposed at compile time by `fold_constants`. For devices only: NumPy's products prefer
    channels first.
    """

    name = "layout"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Collect candidates, compute the cut, rewrite the chosen ops, and report the others."""
        turns = {op: turned for op in g.ops() if (turned := _turned(g, op)) is not None}
        chosen = _cheapest(g, turns, ctx.typical)
        kept = {op: turns[op] for op in turns if op in chosen}
        for op, why in _left_out(g, turns, kept):
            ctx.note_missed(self.name, op, why)
        if kept:
            Twins(g, kept, ctx).rewrite()


# ---- what may turn ----


def _turned(g: Graph, op: Op) -> PermutedOp | None:
    """Return an op's channels-last form, if it and all its images support it."""
    vars = [*op.reads(), *op.writes()]
    rank = max((var.type.rank for var in vars), default=0)
    if rank not in RANKS or op.body is not None or any(var.type.is_open for var in vars):
        return None
    slots = {**op.inputs, **op.outputs}
    types = {slot: [var.type for var in held] for slot, held in slots.items()}
    found = op.defn.permuted(types, channels_last(rank))
    if found is None or not all(_may_turn(g, var, rank) for var in images_of(op, found)):
        return None
    if not all(
        can_be_seen(var.type.shape, found.views[s]) for s in found.views for var in slots[s]
    ):
        return None
    made = (var for slot in found.slots for var in op.outputs.get(slot, ()))
    return found if all(var.role == "temp" for var in made) else None


def _may_turn(g: Graph, var: Var, rank: int) -> bool:
    """Whether a var is written once and shares no memory."""
    return var.type.rank == rank and g.overwriter(var) is None and var.overwrites is None


# ---- what shall turn ----


def _cheapest(g: Graph, turns: Mapping[Op, PermutedOp], typical: int) -> set[Op]:
    """Return the ops to convert so that the fewest bytes are moved (minimum cut)."""
    library: Any = load(lambda: import_module("networkx"))
    net = library.DiGraph()
    net.add_nodes_from((_TURNED, _WRITTEN))
    for op, turned in turns.items():
        net.add_edge(op, _WRITTEN, capacity=1)  # of two that cost the same, the one as written
        if op.defn.reads_tiles():
            images = dict.fromkeys(images_of(op, turned))
            net.add_edge(_TURNED, op, capacity=sum(nbytes(var.type, typical) for var in images))
    for var in dict.fromkeys(var for op in turns for var in images_of(op, turns[op])):
        cost = 0 if is_free(var) else 2 * nbytes(var.type, typical)
        _join(net, _side(g.producer(var), var, turns), _readers(g, var, turns), var, cost)
    way = library.algorithms.flow.boykov_kolmogorov
    _, (turning, _) = library.minimum_cut(net, _TURNED, _WRITTEN, flow_func=way)
    return {op for op in turns if op in turning}


def _side(op: Op | None, var: Var, turns: Mapping[Op, PermutedOp]) -> _Node:
    """Return the node that decides the layout of a var for an op: the op, if it may be
    converted.
    """
    return op if op is not None and op in turns and var in images_of(op, turns[op]) else _WRITTEN


def _readers(g: Graph, var: Var, turns: Mapping[Op, PermutedOp]) -> list[_Node]:
    """Return the nodes that read a var."""
    found = [_side(op, var, turns) for op in g.readers(var)]
    return found + [_WRITTEN] * (var in g.results)


def _join(net: Any, maker: _Node, readers: Sequence[_Node], var: Var, cost: int) -> None:
    """Add the edges of an image: one transpose for all readers in the other layout, either way."""
    away, home = ("away", var), ("home", var)
    if not cost:
        return
    if maker != _WRITTEN:
        net.add_edge(maker, away, capacity=cost)
        net.add_edges_from((away, reader) for reader in readers)
    net.add_edge(home, maker, capacity=cost)
    net.add_edges_from((reader, home) for reader in readers if reader != _WRITTEN)


def _left_out(
    g: Graph, turns: Mapping[Op, PermutedOp], kept: Mapping[Op, PermutedOp]
) -> Iterator[tuple[Op, str]]:
    """Yield ops that keep their layout although they prefer the other, or next to converted ops."""
    around = {var for op in kept for var in images_of(op, kept[op]) if not is_free(var)}
    for op in (op for op in g.ops() if op not in kept):
        near = next((var for var in (*op.reads(), *op.writes()) if var in around), None)
        if op in turns and (op.defn.reads_tiles() or near is not None):
            yield op, "turning what it reads and makes would move more bytes than it saves"
        elif near is not None:
            yield op, f"it keeps the axes of {near.label!r} as they are"
