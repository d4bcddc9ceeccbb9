"""`tree_conv`: a convolution over the subtree of each node of a tree.

Mou et al., "Convolutional Neural Networks over Tree Structures for Programming Language
Processing", AAAI 2016. Reference: tree_conv_op.h, tree2col.h.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, attr, reads, writes
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


def tree_weights(rows: Array, nodes: int, depth: int) -> Array:
    """Return the weights of each node for each root, left, right and top: [roots, 3, nodes]."""
    edges, found = tree_edges(rows, nodes), np.zeros((nodes, 3, nodes))
    children = [[int(c) - 1 for c in edges[edges[:, 0] == n + 1, 1]] for n in range(nodes)]
    for root in range(min(len(edges) + 1, nodes)):
        waiting, visited = [(root, 0.5, 0)], {root}
        while waiting:
            node, position, level = waiting.pop()
            top = (depth - level) / depth
            left = (1.0 - top) * position
            found[root, :, node] += left, (1.0 - top) * (1.0 - left), top
            below = children[node] if level + 1 < depth else []
            positions = np.linspace(0.0, 1.0, len(below)).tolist() if len(below) > 1 else [0.5]
            pairs = [(c, p) for c, p in zip(below, positions, strict=False) if c not in visited]
            visited.update(child for child, _ in pairs)
            waiting += [(child, position, level + 1) for child, position in pairs]
    return found


def batch_weights(EdgeSet: Array, nodes: int, depth: int, like: Array) -> Array:
    """Return the weights of every tree of a batch: [batch, roots, 3, nodes]."""
    result = [tree_weights(edges, nodes, depth) for edges in EdgeSet]
    return np.array(result, like.dtype).reshape(-1, nodes, 3, nodes)


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

    def infer(self, NodesVector: TensorType, EdgeSet: TensorType, Filter: TensorType) -> TensorType:
        require_same_dtype("tree_conv", NodesVector=NodesVector, Filter=Filter)
        require_dtype("tree_conv", "EdgeSet", EdgeSet, DType.INT32)
        nodes, edges, parts = NodesVector.shape, EdgeSet.shape, Filter.shape
        fits = (len(nodes), len(edges), len(parts)) == (3, 3, 4) and not (
            differ(edges[2], 2) or differ(parts[1], 3) or differ(parts[0], nodes[2])
        )
        if not fits or differ(nodes[0], edges[0]):
            given = shown(NodesVector=NodesVector, EdgeSet=EdgeSet, Filter=Filter)
            expected = "[batch, nodes, features], [batch, edges, 2], [features, 3, size, filters]"
            raise ShapeError(f"tree_conv: {given} do not fit, expected {expected}")
        return NodesVector.with_shape((*nodes[:2], *parts[2:]))

    def numpy(self, NodesVector: Array, EdgeSet: Array, Filter: Array) -> Array:
        weights = batch_weights(EdgeSet, NodesVector.shape[1], self.max_depth, NodesVector)
        visited = np.einsum("bnkm,bmf->bnfk", weights, NodesVector)
        return np.tensordot(visited, Filter, axes=2)

    def grad(
        self, NodesVector: Array, EdgeSet: Array, Filter: Array, d_Out: Array
    ) -> dict[str, Array]:
        weights = batch_weights(EdgeSet, NodesVector.shape[1], self.max_depth, NodesVector)
        visited = np.einsum("bnkm,bmf->bnfk", weights, NodesVector)
        d_seen = np.tensordot(d_Out, Filter, axes=([2, 3], [2, 3]))
        return {
            "NodesVector": np.einsum("bnkm,bnfk->bmf", weights, d_seen),
            "Filter": np.tensordot(visited, d_Out, axes=([0, 1], [0, 1])),
        }
