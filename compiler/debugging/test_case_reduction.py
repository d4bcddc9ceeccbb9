"""The smallest program that still does something: delta debugging over the ops of a graph.

A part of a graph is a graph: what it reads of the ops that are gone is fed, and what nobody reads
is returned. Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from compiler.errors import CompileError
from compiler.ir.analysis.verifier import verify
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.text.parser import parse
from compiler.ir.types import TOKEN

Fails = Callable[[Sequence[int]], bool]


def first_prefix(count: int, fails: Fails) -> int:
    """How many of the first of `count` ops it takes to fail; all of them are known to.

    >>> first_prefix(100, lambda kept: 41 in kept)
    42
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(range(middle)) else (middle, high)
    return high


def smallest(kept: Sequence[int], fails: Fails) -> list[int]:
    """Of ops that fail together, few that still do, of which none can be spared.

    >>> smallest(range(100), lambda kept: {3, 41} <= set(kept))
    [3, 41]
    """
    left, size = list(kept), max(len(kept) // 2, 1)
    while True:
        spared = _spared(left, size, fails)
        if len(spared) == len(left) and size == 1:
            return left
        size = max(min(size, len(spared)) // 2, 1)
        left = spared


def _spared(kept: list[int], size: int, fails: Fails) -> list[int]:
    """The same without every run of `size` ops that can be spared, from the end."""
    for start in range((len(kept) - 1) // size * size, -1, -size):
        rest = kept[:start] + kept[start + size :]
        if rest and fails(rest):
            kept = rest
    return kept


def part(text: str, kept: Iterable[int]) -> Graph | None:
    """The ops with these numbers of a graph in text, as a graph; None where there can be none.

    Feeds of the part have the names of the vars they stand for.
    """
    graph = parse(text)
    ops, wanted = graph.ops(), set(kept)
    graph.remove(*(op for index, op in enumerate(ops) if index not in wanted))
    graph.results = [var for var in graph.results if _stands(graph, var)]
    loose = [var for var in graph.vars() if _is_loose(graph, var)]
    if not all(_may_be_fed(var) for var in loose):
        return None
    for var in loose:
        var.role = "feed"
    for var in [v for v in graph.feeds() if not graph.readers(v) and v not in graph.results]:
        var.role = "temp"
    _return_ends(graph)
    graph.sweep()
    try:
        verify(graph)
    except CompileError:
        return None
    return graph


def _stands(graph: Graph, var: Var) -> bool:
    return var.role != "temp" or graph.producer(var) is not None


def _is_loose(graph: Graph, var: Var) -> bool:
    """True for what an op that is gone computed and one that is left reads."""
    missing = graph.producer(var) is None and (var.role == "temp" or var.version > 0)
    return missing and bool(graph.readers(var) or graph.overwriter(var) is not None)


def _may_be_fed(var: Var) -> bool:
    plain = var.role == "temp" and not var.version and var.overwrites is None
    return plain and var.type != TOKEN and not var.type.is_array and not var.type.is_open


def _return_ends(graph: Graph) -> None:
    """Return the first result of every op of which nothing is read, returned or kept."""
    for op in graph.ops():
        if not any(_is_used(graph, var) for var in op.writes()) and (var := _main(op)):
            graph.results.append(var)


def _is_used(graph: Graph, var: Var) -> bool:
    read = graph.readers(var) or graph.overwriter(var) is not None
    return bool(read) or var in graph.results or var.role == "param"


def _main(op: Op) -> Var | None:
    """The output an op is for: that of the first slot its class names."""
    slots = [slot for slot in op.defn.outputs() if slot in op.outputs]
    found = op.outputs[slots[0]][0] if slots else None
    return found if found is not None and found.type != TOKEN else None
