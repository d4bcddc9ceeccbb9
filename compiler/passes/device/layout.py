"""Keep images with their channels last inside the graph, and turn them at its edges only.

A device reads images as matrices whose rows are channels: where those lie together a tile comes in
long runs. Which ops turn is the cheapest choice in bytes. A convolution that stays as written costs
its images once more; an image that one side makes and the other reads is read and written once by
a transpose. That is a minimum cut between what turns and what cannot, found exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import networkx as nx

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef.layout_rules import PermutedOp, channels_last
from compiler.passes.base import Context, Fact, Pass
from compiler.passes.device.permuted_values import Twins, can_be_seen, images_of, is_free
from compiler.passes.memory.schedules import nbytes

RANKS = (4, 5)
"""Axes of a batch of pictures, and of volumes."""

_TURNED, _WRITTEN = "turned", "as written"

_Node: TypeAlias = "Op | str | tuple[str, Var]"
"""An op that may turn, one of the two sides, or an image that is turned away or back home."""


class Layout(Pass):
    """y = conv(x, w)  =  x' = transpose(x); y' = conv(x', w, NHWC); y = transpose(y').

    A var of the graph keeps its name and its axes; its twin is what the ops read that turn, so that
    most transposes have no readers and are not made. Filters stay as they are; constant ones are
    turned ahead, by `fold_constants`. For devices alone: NumPy's products want channels first.
    """

    name = "layout"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def run(self, g: Graph, ctx: Context) -> None:
        """Ask every op, cut, rewrite what turns, and tell why its neighbours do not."""
        turns = {op: turned for op in g.ops() if (turned := _turned(g, op)) is not None}
        chosen = _cheapest(g, turns, ctx.typical)
        kept = {op: turns[op] for op in turns if op in chosen}
        for op, why in _left_out(g, turns, kept):
            ctx.note_missed(self.name, op, why)
        if kept:
            Twins(g, kept, ctx).rewrite()


# ---- what may turn ----


def _turned(g: Graph, op: Op) -> PermutedOp | None:
    """An op over turned values, where it and all of those can be."""
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
    """True for a value that is written once, into memory of its own."""
    return var.type.rank == rank and g.overwriter(var) is None and var.overwrites is None


# ---- what shall turn ----


def _cheapest(g: Graph, turns: Mapping[Op, PermutedOp], typical: int) -> set[Op]:
    """The ops that turn where the fewest bytes are moved for nothing."""
    net: nx.DiGraph[_Node] = nx.DiGraph()
    net.add_nodes_from((_TURNED, _WRITTEN))
    for op, turned in turns.items():
        net.add_edge(op, _WRITTEN, capacity=1)  # of two that cost the same, the one as written
        if op.defn.reads_tiles():
            images = dict.fromkeys(images_of(op, turned))
            net.add_edge(_TURNED, op, capacity=sum(nbytes(var.type, typical) for var in images))
    for var in dict.fromkeys(var for op in turns for var in images_of(op, turns[op])):
        cost = 0 if is_free(var) else 2 * nbytes(var.type, typical)
        _join(net, _side(g.producer(var), var, turns), _readers(g, var, turns), var, cost)
    library: Any = nx  # whose stubs leave open what these give
    way = library.algorithms.flow.boykov_kolmogorov
    _, (turning, _) = library.minimum_cut(net, _TURNED, _WRITTEN, flow_func=way)
    return {op for op in turns if op in turning}


def _side(op: Op | None, var: Var, turns: Mapping[Op, PermutedOp]) -> _Node:
    """The node that decides how a var lies for an op: the op, where it may turn with the var."""
    return op if op is not None and op in turns and var in images_of(op, turns[op]) else _WRITTEN


def _readers(g: Graph, var: Var, turns: Mapping[Op, PermutedOp]) -> list[_Node]:
    """The nodes that decide how a var must lie."""
    found = [_side(op, var, turns) for op in g.readers(var)]
    return found + [_WRITTEN] * (var in g.results)


def _join(
    net: nx.DiGraph[_Node], maker: _Node, readers: Sequence[_Node], var: Var, cost: int
) -> None:
    """An image is turned once for all that read it so, and once back for all others."""
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
    """Ops that stay as written though they prefer not to, or though others around them turn."""
    around = {var for op in kept for var in images_of(op, kept[op]) if not is_free(var)}
    for op in (op for op in g.ops() if op not in kept):
        near = next((var for var in (*op.reads(), *op.writes()) if var in around), None)
        if op in turns and (op.defn.reads_tiles() or near is not None):
            yield op, "turning what it reads and makes would move more bytes than it saves"
        elif near is not None:
            yield op, f"it keeps the axes of {near.label!r} as they are"
