"""Channels-last layout: images are permuted at the edges of the graph only.

A device reads images as matrices whose rows are channels: contiguous channels make long contiguous
tile loads. Which ops use channels-last is chosen to minimise bytes: a convolution that keeps the
original layout costs as much as some extra reads of its images; an image written in one layout and
read in the other costs a transpose, one read and one write. That is a minimum cut, found exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

import networkx as nx

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef.layout_rules import PermutedOp, channels_last
from compiler.options import Options
from compiler.passes.base import Context, Fact, OpTarget, Pass
from compiler.passes.device.permuted_values import (
    PermutedCopies,
    is_free_transpose,
    is_reshapable,
    layout_operands,
)
from compiler.passes.memory.schedules import nbytes

RANKS = (4, 5)
"""Ranks of batches of images and of volumes."""

_PERMUTED, _ORIGINAL = "permuted", "original"

_Node: TypeAlias = "Op | str | tuple[str, Var]"
"""A node of the cut: an op, one of the two layouts, or a transposed image."""


class Layout(Pass):
    """y = conv(x, w)  =  x' = transpose(x); y' = conv(x', w, NHWC); y = transpose(y').

    Vars keep their names and axes; channels-last ops read permuted copies of them, so most
    transposes have no readers and are removed. Filters keep their layout; constant ones are
    transposed at compile time by `fold_constants`, and with `permutes_filters` those of training in
    each step, by the kernel that casts them to half precision if one does. Not for NumPy, whose
    products prefer channels first.

    A convolution in the original layout costs `extra_reads` reads of its images: one on a GPU, many
    on a CPU, where it has no products of tiles.
    """

    name = "layout"
    invalidates = frozenset({Fact.GROUPED, Fact.ORDERED, Fact.STORED})

    def __init__(self, permutes_filters: bool = False, extra_reads: int = 1) -> None:
        self.permutes_filters = permutes_filters
        self.extra_reads = extra_reads

    @classmethod
    def configure(cls, options: Options, target: OpTarget | None) -> Self | None:
        """On a CPU a convolution in the original layout takes as long as dozens of reads of its
        images; filters are transposed in training on a device only.
        """
        if target is None or cls.name in options.disable:
            return None
        return cls(permutes_filters=True) if target.on_device else cls(extra_reads=64)

    def run(self, g: Graph, ctx: Context) -> None:
        """Collect candidates, compute the cut, rewrite the chosen ops, and report the others."""
        candidates = {
            op: permuted for op in g.ops() if (permuted := _permuted_form(g, op)) is not None
        }
        chosen = _minimum_cut(g, candidates, ctx.typical, self.extra_reads)
        selected = {op: candidates[op] for op in candidates if op in chosen}
        for op, why in _unchanged(g, candidates, selected):
            ctx.note_missed(self.name, op, why)
        if selected:
            PermutedCopies(g, selected, ctx, self.permutes_filters).rewrite()


# ---- candidates ----


def _permuted_form(g: Graph, op: Op) -> PermutedOp | None:
    """Return an op's channels-last form, if it and all its images support it."""
    vars = [*op.reads(), *op.writes()]
    rank = max((var.type.rank for var in vars), default=0)
    if rank not in RANKS or op.body is not None or any(var.type.is_open for var in vars):
        return None
    slots = {**op.inputs, **op.outputs}
    types = {slot: [var.type for var in operands] for slot, operands in slots.items()}
    form = op.defn.permuted(types, channels_last(rank))
    if form is None or not all(_may_be_permuted(g, var, rank) for var in layout_operands(op, form)):
        return None
    if not all(
        is_reshapable(var.type.shape, form.views[s]) for s in form.views for var in slots[s]
    ):
        return None
    outputs = (var for slot in form.slots for var in op.outputs.get(slot, ()))
    return form if all(var.role == "temp" for var in outputs) else None


def _may_be_permuted(g: Graph, var: Var, rank: int) -> bool:
    """Whether a var is written once and shares no memory."""
    return var.type.rank == rank and g.overwriter(var) is None and var.overwrites is None


# ---- minimum cut ----


def _minimum_cut(
    g: Graph, candidates: Mapping[Op, PermutedOp], typical: int, extra_reads: int
) -> set[Op]:
    """Return the ops to convert so that the fewest bytes are moved (minimum cut)."""
    net: nx.DiGraph[_Node] = nx.DiGraph()
    net.add_nodes_from((_PERMUTED, _ORIGINAL))
    for op, permuted in candidates.items():
        net.add_edge(op, _ORIGINAL, capacity=1)  # ties: the original layout
        if op.defn.reads_tiles():
            images = dict.fromkeys(layout_operands(op, permuted))
            size = sum(nbytes(var.type, typical) for var in images)
            net.add_edge(_PERMUTED, op, capacity=extra_reads * size)
    for var in dict.fromkeys(
        var for op in candidates for var in layout_operands(op, candidates[op])
    ):
        cost = 0 if is_free_transpose(var) else 2 * nbytes(var.type, typical)
        _add_image_edges(
            net,
            _layout_node(g.producer(var), var, candidates),
            _readers(g, var, candidates),
            var,
            cost,
        )
    library: Any = nx  # whose stubs lack these types
    max_flow = library.algorithms.flow.boykov_kolmogorov
    _, (permuted_ops, _) = library.minimum_cut(net, _PERMUTED, _ORIGINAL, flow_func=max_flow)
    return {op for op in candidates if op in permuted_ops}


def _layout_node(op: Op | None, var: Var, candidates: Mapping[Op, PermutedOp]) -> _Node:
    """Return the node that decides the layout of a var for an op: the op, if it may be
    converted.
    """
    if op is None or op not in candidates:
        return _ORIGINAL
    return op if var in layout_operands(op, candidates[op]) else _ORIGINAL


def _readers(g: Graph, var: Var, candidates: Mapping[Op, PermutedOp]) -> list[_Node]:
    """Return the nodes that read a var."""
    nodes = [_layout_node(op, var, candidates) for op in g.readers(var)]
    return nodes + [_ORIGINAL] * (var in g.results)


def _add_image_edges(
    net: nx.DiGraph[_Node], producer: _Node, readers: Sequence[_Node], var: Var, cost: int
) -> None:
    """Add the edges of an image: one transpose for all readers in the other layout."""
    to_permuted, to_original = ("to_permuted", var), ("to_original", var)
    if not cost:
        return
    if producer != _ORIGINAL:
        net.add_edge(producer, to_permuted, capacity=cost)
        net.add_edges_from((to_permuted, reader) for reader in readers)
    net.add_edge(to_original, producer, capacity=cost)
    net.add_edges_from((reader, to_original) for reader in readers if reader != _ORIGINAL)


def _unchanged(
    g: Graph, candidates: Mapping[Op, PermutedOp], kept: Mapping[Op, PermutedOp]
) -> Iterator[tuple[Op, str]]:
    """Yield ops that keep their layout although they prefer the other, or next to converted ops."""
    around = {
        var for op in kept for var in layout_operands(op, kept[op]) if not is_free_transpose(var)
    }
    for op in (op for op in g.ops() if op not in kept):
        near = next((var for var in (*op.reads(), *op.writes()) if var in around), None)
        if op in candidates and (op.defn.reads_tiles() or near is not None):
            yield op, "permuting its operands would move more bytes than it saves"
        elif near is not None:
            yield op, f"it reads or writes {near.label!r} in the original layout"
