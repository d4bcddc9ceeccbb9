"""`tree_conv` takes memory in proportion to the nodes, and sums over subtrees."""

import tracemalloc

import numpy as np
import pytest

from compiler.ir.opdef import find
from compiler.ops.matching.tree_conv import batch_edges, subtrees, visited_subtrees
from tests.ops.samples import numbers


def test_memory_does_not_grow_with_the_square_of_the_nodes():
    nodes = 1000
    chain = np.stack([np.arange(1, nodes), np.arange(2, nodes + 1)], axis=-1)[None].astype(np.int32)
    inputs = {"NodesVector": numbers(1, nodes, 2), "Filter": numbers(2, 3, 1, 1)}
    op = find("tree_conv")({})
    tracemalloc.start()
    out = op.evaluate({**inputs, "EdgeSet": chain})["Out"]
    op.grad(**inputs, EdgeSet=chain, d_Out=np.ones_like(out))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < nodes * nodes


def test_each_node_sums_itself_and_its_children():
    """A node itself is the top; of a child at position p, a half is the top, p / 2 is left and
    (1 - p / 2) / 2 is right.
    """
    rows, weights = numbers(2, 4, 3), numbers(3, 3, 1, 1)
    edges = np.array([[[1, 2], [1, 4], [0, 0]], [[2, 3], [0, 0], [0, 0]]], np.int32)
    out = find("tree_conv")({}).evaluate(
        {"NodesVector": rows, "EdgeSet": edges, "Filter": weights}
    )["Out"]
    left, right, top = weights[:, :, 0, 0].T
    expected = np.zeros((2, 4), np.float32)
    expected[0] = rows[0] @ top
    expected[0, 3] = 0.0
    expected[0, 0] += (rows[0, 1] @ top + rows[0, 1] @ right + rows[0, 3] @ top) / 2
    expected[0, 0] += rows[0, 3] @ (left / 2 + right / 4)
    expected[1, :2] = rows[1, :2] @ top
    expected[1, 1] += rows[1, 2] @ (top / 2 + left / 4 + right * 3 / 8)
    np.testing.assert_allclose(out[..., 0, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("depth", [2, 3, 9])
def test_levels_of_forests_are_what_visits_find(depth):
    """Nodes have one parent at most; some are their own ancestors."""
    random = np.random.default_rng(depth)
    for _ in range(50):
        nodes, count = random.integers(1, 9), random.integers(0, 9)
        children = random.permutation(nodes)[:count] + 1
        edges = np.zeros((1, 9, 2), np.int32)
        edges[0, : len(children), 1] = children
        edges[0, : len(children), 0] = random.integers(1, nodes + 1, len(children))
        above, below, _ = batch_edges(edges, nodes)
        roots = np.arange(nodes)
        levels = subtrees(above, below, roots, nodes, depth)
        visited = visited_subtrees(above, below, roots, depth)
        for level, expected in zip(levels, visited, strict=False):
            np.testing.assert_array_equal(
                *(sorted(zip(*rows, strict=True)) for rows in (level, expected))
            )
        assert not any(
            len(level[0]) for level in [*levels[len(visited) :], *visited[len(levels) :]]
        )


def test_a_node_with_two_parents_counts_once():
    """Node 3 is below 1 as its second child, and not again as the child of 2."""
    edges = np.array([[[1, 2], [1, 3], [2, 3]]], np.int32)
    inputs = {"NodesVector": np.ones((1, 3, 1), np.float32), "EdgeSet": edges}
    inputs["Filter"] = np.ones((1, 3, 1, 1), np.float32)
    out = find("tree_conv")({"max_depth": 3}).evaluate(inputs)["Out"]
    np.testing.assert_allclose(out.ravel(), [3 + 2 / 9, 2 + 1 / 9, 1], rtol=1e-6)


def test_unknown_nodes_are_refused():
    inputs = {"NodesVector": np.ones((1, 3, 1), np.float32)}
    inputs["EdgeSet"], inputs["Filter"] = np.array([[[1, 4]]], np.int32), np.ones((1, 3, 1, 1), "f")
    with pytest.raises(ValueError, match="EdgeSet has the node 4, expected 1 to 3"):
        find("tree_conv")({}).evaluate(inputs)
