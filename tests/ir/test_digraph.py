"""`Digraph` has the nodes, edges and orders that networkx has."""

import random

import networkx as nx
import pytest

from compiler.ir.digraph import Digraph


def both(seed: int, acyclic: bool) -> tuple[Digraph[int], "nx.DiGraph[int]"]:
    """The same random edits on a Digraph and on a networkx graph."""
    chosen = random.Random(seed)
    ours, theirs = Digraph[int](range(5)), nx.DiGraph()
    theirs.add_nodes_from(range(5))
    for _ in range(60):
        pair = chosen.sample(range(12), 2)
        start, end = sorted(pair) if acyclic else pair
        ours.add_edges([(start, end)])
        theirs.add_edge(start, end)
        if chosen.random() < 0.3:
            edge = chosen.choice(list(theirs.edges))
            ours.remove_edge(*edge)
            theirs.remove_edge(*edge)
        if chosen.random() < 0.1:
            node = chosen.choice(list(theirs))
            ours.remove_node(node)
            theirs.remove_node(node)
    return ours, theirs


@pytest.mark.parametrize("seed", range(8))
def test_edits_have_the_same_result(seed: int) -> None:
    ours, theirs = both(seed, acyclic=False)
    assert list(ours) == list(theirs)
    assert ours.lists() == nx.to_dict_of_lists(theirs)
    for node in theirs:
        assert list(ours.successors(node)) == list(theirs.successors(node))
        assert list(ours.predecessors(node)) == list(theirs.predecessors(node))
        assert ours.degree(node) == theirs.degree[node]
        assert ours.out_degree(node) == theirs.out_degree[node]
        assert [ours.has_edge(node, end) for end in theirs] == [
            theirs.has_edge(node, end) for end in theirs
        ]
    parts = list(nx.strongly_connected_components(theirs))
    assert all(ours.component(node) in parts for node in theirs)


@pytest.mark.parametrize("seed", range(8))
def test_the_topological_order_is_the_same(seed: int) -> None:
    ours, theirs = both(seed, acyclic=True)
    for key in (int, lambda node: -node, lambda node: node % 3):
        assert ours.topological_order(key) == list(nx.lexicographical_topological_sort(theirs, key))


def test_a_node_with_an_edge_to_itself_is_removed() -> None:
    graph = Digraph([1, 2], [(1, 1), (1, 2)])
    assert graph.component(1) == {1}
    graph.remove_node(1)
    assert (list(graph), graph.degree(2), 1 in graph) == ([2], 0, False)


def test_a_cycle_has_no_topological_order() -> None:
    with pytest.raises(ValueError, match="cycle"):
        Digraph([], [(1, 2), (2, 1)]).topological_order(int)
