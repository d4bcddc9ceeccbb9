"""`tree_conv` takes memory in proportion to the nodes, and sums over subtrees."""

import tracemalloc

import numpy as np

from compiler.ir.opdef import find
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
