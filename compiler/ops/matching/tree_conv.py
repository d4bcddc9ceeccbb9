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


def batch_edges(EdgeSet: Array, nodes: int) -> tuple[Array, Array, Array]:
    """Return the parents and children [n] in the nodes of all trees, and each tree's edge count.

    Edges of a tree end at the first 0. Raises ValueError for unknown nodes.
    """
    valid = (EdgeSet != 0).all(axis=2)
    valid = np.logical_and.accumulate(valid, axis=1)
    edges = EdgeSet[valid].astype(np.int64)
    if edges.size and not 1 <= edges.min() <= edges.max() <= nodes:
        raise ValueError(f"EdgeSet has the node {edges.max()}, expected 1 to {nodes}")
    firsts = np.repeat(np.arange(len(EdgeSet)) * nodes, valid.sum(axis=1))
    return edges[:, 0] - 1 + firsts, edges[:, 1] - 1 + firsts, valid.sum(axis=1)


def sibling_places(counts: Array) -> Array:
    """Return where each child is among its siblings, from 0 to 1; 0.5 for an only child.

    `counts` are the numbers of children of each node; children follow in this order.
    """
    number = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    siblings = np.repeat(counts, counts)
    return np.where(siblings > 1, number / np.maximum(siblings - 1, 1), 0.5)


def subtrees(
    parents: Array, children: Array, roots: Array, nodes: int, depth: int
) -> list[tuple[Array, Array, Array]]:
    """Return roots, nodes and places among siblings [n] of each level of the roots' subtrees.

    Every one of `nodes` nodes has one parent at most; a root is not in its own subtree again.
    """
    order = np.argsort(parents, kind="stable")
    children, counts = children[order], np.bincount(parents, minlength=nodes)
    places, begins = sibling_places(counts), np.cumsum(counts) - counts
    levels = [(roots, roots, np.full(len(roots), 0.5))]
    while len(levels) < depth and len(roots):
        top, node, _ = levels[-1]
        sizes = counts[node]
        which = np.arange(int(sizes.sum())) + np.repeat(
            begins[node] - (np.cumsum(sizes) - sizes), sizes
        )
        roots = np.repeat(top, sizes)
        others = roots != children[which]
        roots, which = roots[others], which[others]
        levels.append((roots, children[which], places[which]))
    return levels


def visited_subtrees(
    parents: Array, children: Array, roots: Array, depth: int
) -> list[tuple[Array, Array, Array]]:
    """`subtrees` of a graph: a node that is reached twice is where it is visited first."""
    below = dict[int, list[int]]()
    for parent, child in zip(parents.tolist(), children.tolist(), strict=True):
        below.setdefault(parent, []).append(child)
    depth = min(depth, len(parents) + 1)
    levels: list[list[tuple[int, int, float]]] = [[] for _ in range(depth)]
    for root in roots.tolist():
        waiting, visited = [(root, 0.5, 0)], {root}
        while waiting:
            node, place, level = waiting.pop()
            levels[level].append((root, node, place))
            own = below.get(node, []) if level + 1 < depth else []
            places = np.linspace(0.0, 1.0, len(own)).tolist() if len(own) > 1 else [0.5]
            pairs = [(c, p) for c, p in zip(own, places, strict=False) if c not in visited]
            visited.update(child for child, _ in pairs)
            waiting += [(child, place, level + 1) for child, place in pairs]
    tables = [np.array(rows, np.float64).reshape(-1, 3) for rows in levels]
    return [(t[:, 0].astype(np.int64), t[:, 1].astype(np.int64), t[:, 2]) for t in tables]


def batch_weights(
    EdgeSet: Array, nodes: int, depth: int, like: Array
) -> tuple[Array, Array, Array]:
    """Return the nodes of each root's subtree: roots [n], in order, nodes [n], weights [n, 3].

    Nodes of all trees of a batch are counted on. The weights are those of the parts left, right
    and top.
    """
    parents, children, edges = batch_edges(EdgeSet, nodes)
    node, count = np.arange(nodes), len(EdgeSet) * nodes
    is_root = node < np.minimum(edges + 1, nodes)[:, None]
    roots = np.flatnonzero(is_root)
    if (np.bincount(children) > 1).any():
        levels = visited_subtrees(parents, children, roots, depth)
    else:
        levels = subtrees(parents, children, roots, count, depth)
    parts: list[Array] = []
    for level, (_, _, place) in enumerate(levels):
        top = (depth - level) / depth
        left = (1.0 - top) * place
        parts.append(np.stack([left, (1.0 - top) * (1.0 - left), np.full(len(place), top)], axis=1))
    owner, member = (np.concatenate([level[n] for level in levels]) for n in range(2))
    order = np.argsort(owner, kind="stable")
    return owner[order], member[order], np.concatenate(parts)[order].astype(like.dtype)


def sums_by_index(values: Array, index: Array, count: int) -> Array:
    """Return the sums [count, …] of the values [n, …] of each index, accumulated in float64.

    `index` ascends.
    """
    sums = np.zeros((count, *values.shape[1:]), values.dtype)
    if len(index):
        starts = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
        sums[index[starts]] = np.add.reduceat(values, starts, axis=0, dtype=np.float64)
    return sums


def visited_nodes(NodesVector: Array, terms: tuple[Array, Array, Array]) -> Array:
    """Return the weighted sum of each root's nodes: [batch, roots, 3, features]."""
    (roots, members, weights), shape = terms, NodesVector.shape
    rows = NodesVector.reshape(-1, shape[2])
    products = rows[members][:, None] * weights[:, :, None]
    return sums_by_index(products, roots, len(rows)).reshape(*shape[:2], 3, shape[2])


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
        return np.tensordot(visited_nodes(NodesVector, terms), Filter.swapaxes(0, 1), axes=2)

    def grad(
        self, NodesVector: Array, EdgeSet: Array, Filter: Array, d_Out: Array
    ) -> dict[str, Array]:
        terms = batch_weights(EdgeSet, NodesVector.shape[1], self.max_depth, NodesVector)
        (roots, members, weights), shape = terms, NodesVector.shape
        d_visited = np.tensordot(d_Out, Filter.swapaxes(0, 1), axes=([2, 3], [2, 3]))
        d_visited = d_visited.reshape(-1, 3, shape[2])
        order = np.argsort(members, kind="stable")
        d_rows = (d_visited[roots[order]] * weights[order, :, None]).sum(axis=1)
        d_nodes = sums_by_index(d_rows, members[order], len(d_visited))
        by_filter = np.tensordot(visited_nodes(NodesVector, terms), d_Out, axes=([0, 1], [0, 1]))
        return {"NodesVector": d_nodes.reshape(shape), "Filter": by_filter.swapaxes(0, 1)}
