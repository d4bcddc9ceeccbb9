"""`tree_conv`: a convolution over the subtree of each node of a tree.

Mou et al., "Convolutional Neural Networks over Tree Structures for Programming Language
Processing", AAAI 2016. Reference: tree_conv_op.h, tree2col.h.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype, shown


def tree_edges(rows: Array, nodes: int) -> Array:
    """Return the edges [n, 2] before the first 0; raises ValueError for unknown nodes."""
    ends = np.flatnonzero((rows == 0).any(axis=1))
    edges = rows[: ends[0]] if len(ends) else rows
    if edges.size and not 1 <= edges.min() <= edges.max() <= nodes:
        raise ValueError(f"EdgeSet has the node {edges.max()}, expected 1 to {nodes}")
    return edges


def tree_weights(rows: Array, nodes: int, depth: int) -> tuple[Array, Array, Array]:
    """Return the nodes of each root's subtree: roots [n], in order, nodes [n], weights [n, 3].

    The weights are those of the parts left, right and top.
    """
    edges, children = tree_edges(rows, nodes), dict[int, list[int]]()
    for parent, child in edges.tolist():
        children.setdefault(parent - 1, []).append(child - 1)
    roots: list[int] = []
    members: list[int] = []
    weights: list[tuple[float, float, float]] = []
    for root in range(min(len(edges) + 1, nodes)):
        waiting, visited = [(root, 0.5, 0)], {root}
        while waiting:
            node, position, level = waiting.pop()
            top = (depth - level) / depth
            left = (1.0 - top) * position
            roots.append(root)
            members.append(node)
            weights.append((left, (1.0 - top) * (1.0 - left), top))
            below = children.get(node, []) if level + 1 < depth else []
            positions = np.linspace(0.0, 1.0, len(below)).tolist() if len(below) > 1 else [0.5]
            pairs = [(c, p) for c, p in zip(below, positions, strict=False) if c not in visited]
            visited.update(child for child, _ in pairs)
            waiting += [(child, position, level + 1) for child, position in pairs]
    return np.array(roots, np.int64), np.array(members, np.int64), np.array(weights).reshape(-1, 3)


def batch_weights(
    EdgeSet: Array, nodes: int, depth: int, like: Array
) -> tuple[Array, Array, Array]:
    """Return `tree_weights` of every tree of a batch, whose nodes are counted on."""
    trees = [tree_weights(edges, nodes, depth) for edges in EdgeSet]
    empty = np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 3))
    firsts = [tree * nodes for tree in range(len(trees))]
    roots, members, weights = zip(empty, *trees, strict=True)
    return (
        np.concatenate([empty[0], *map(np.add, roots[1:], firsts)]),
        np.concatenate([empty[1], *map(np.add, members[1:], firsts)]),
        np.concatenate(weights).astype(like.dtype),
    )


def sums_by_index(values: Array, index: Array, count: int) -> Array:
    """Return the sums [count, …] of the values [n, …] of each index, accumulated in float64."""
    sums = np.zeros((count, *values.shape[1:]), values.dtype)
    order = np.argsort(index, kind="stable")
    present, starts = np.unique(index[order], return_index=True)
    if len(present):
        sums[present] = np.add.reduceat(values[order], starts, axis=0, dtype=np.float64)
    return sums


def visited_nodes(NodesVector: Array, terms: tuple[Array, Array, Array]) -> Array:
    """Return the weighted sum of each root's nodes: [batch, roots, features, 3]."""
    (roots, members, weights), shape = terms, NodesVector.shape
    rows = NodesVector.reshape(-1, shape[2])
    parts = [
        sums_by_index(rows[members] * weights[:, part, None], roots, len(rows)) for part in range(3)
    ]
    return np.stack(parts, axis=-1).reshape(*shape, 3)


class TreeConv(OpDef, op="tree_conv"):
    """Out [batch, nodes, size, filters]: the weighted sum over each node's subtree.

    The subtree has depth at most `max_depth` - 1; each node is multiplied by a mixture of the three
    parts, left, right and top, of Filter [features, 3, size, filters].

    NodesVector is [batch, nodes, features], EdgeSet int32 [batch, edges, 2]: parent and child,
    counted from 1, up to the first 0. Out is 0 where there is no node, where Paddle 1.8.5 leaves
    memory uninitialised; the gradient is that of Out.
    """

    no_kernel_reason = "trees are traversed node by node"

    NodesVector = reads()
    EdgeSet = reads(no_grad=True)
    Filter = reads()
    Out = writes(shares_lod=False)
    max_depth = attr(2, Accepted(low=2))

    def infer(self, s: Slots[TensorType]) -> TensorType:
        NodesVector, EdgeSet, Filter = s.NodesVector, s.EdgeSet, s.Filter
        require_same_dtype("tree_conv", NodesVector=NodesVector, Filter=Filter)
        require_dtype("tree_conv", "EdgeSet", EdgeSet, DType.INT32)
        nodes, edges, parts = NodesVector.shape, EdgeSet.shape, Filter.shape
        fits = (len(nodes), len(edges), len(parts)) == (3, 3, 4) and not (
            differ(edges[2], 2) or differ(parts[1], 3) or differ(parts[0], nodes[2])
        )
        if not fits or differ(nodes[0], edges[0]):
            shapes = shown(NodesVector=NodesVector, EdgeSet=EdgeSet, Filter=Filter)
            expected = "[batch, nodes, features], [batch, edges, 2], [features, 3, size, filters]"
            raise ShapeError(f"tree_conv: {shapes} do not fit, expected {expected}")
        return NodesVector.with_shape((*nodes[:2], *parts[2:]))

    def numpy(self, NodesVector: Array, EdgeSet: Array, Filter: Array) -> Array:
        terms = batch_weights(EdgeSet, NodesVector.shape[1], self.max_depth, NodesVector)
        return np.tensordot(visited_nodes(NodesVector, terms), Filter, axes=2)

    def grad(
        self, NodesVector: Array, EdgeSet: Array, Filter: Array, d_Out: Array
    ) -> dict[str, Array]:
        terms = batch_weights(EdgeSet, NodesVector.shape[1], self.max_depth, NodesVector)
        (roots, members, weights), shape = terms, NodesVector.shape
        d_visited = np.tensordot(d_Out, Filter, axes=([2, 3], [2, 3])).reshape(-1, shape[2], 3)
        d_rows = np.einsum("tfk,tk->tf", d_visited[roots], weights)
        visited = visited_nodes(NodesVector, terms)
        return {
            "NodesVector": sums_by_index(d_rows, members, len(d_visited)).reshape(shape),
            "Filter": np.tensordot(visited, d_Out, axes=([0, 1], [0, 1])),
        }
