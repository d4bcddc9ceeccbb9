"""Test case reduction: delta debugging over the ops of a graph.

A subset of a graph's ops is a graph: values read from removed ops become feeds, and unread values
become results. Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input",
2002.
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
    """Return the length of the shortest failing prefix of `count` ops; all of them must fail.

    >>> first_prefix(100, lambda kept: 41 in kept)
    42
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(range(middle)) else (middle, high)
    return high


def smallest(kept: Sequence[int], fails: Fails) -> list[int]:
    """Reduce failing ops to a subset that still fails, from which no single op can be removed.

    >>> smallest(range(100), lambda kept: {3, 41} <= set(kept))
    [3, 41]
    """
    left, size = list(kept), max(len(kept) // 2, 1)
    while True:
        reduced = _without_removable_runs(left, size, fails)
        if len(reduced) == len(left) and size == 1:
            return left
        size = max(min(size, len(reduced)) // 2, 1)
        left = reduced


def _without_removable_runs(kept: list[int], size: int, fails: Fails) -> list[int]:
    """Remove every run of `size` ops whose removal still fails, from the end."""
    for start in range((len(kept) - 1) // size * size, -1, -size):
        rest = kept[:start] + kept[start + size :]
        if rest and fails(rest):
            kept = rest
    return kept


def part(text: str, kept: Iterable[int]) -> Graph | None:
    """Return the subgraph of the ops with these indices; None if it is not a valid graph.

    Its feeds are named after the vars they replace.
    """
    graph = parse(text)
    ops, selected = graph.ops(), set(kept)
    graph.remove(*(op for index, op in enumerate(ops) if index not in selected))
    graph.results = [var for var in graph.results if _is_valid_result(graph, var)]
    missing_inputs = [var for var in graph.vars() if _is_missing_input(graph, var)]
    if not all(_may_be_fed(var) for var in missing_inputs):
        return None
    for var in missing_inputs:
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


def _is_valid_result(graph: Graph, var: Var) -> bool:
    return var.role != "temp" or graph.producer(var) is not None


def _is_missing_input(graph: Graph, var: Var) -> bool:
    """Whether a remaining op reads a var that a removed op computed."""
    missing = graph.producer(var) is None and (var.role == "temp" or var.version > 0)
    return missing and bool(graph.readers(var) or graph.overwriter(var) is not None)


def _may_be_fed(var: Var) -> bool:
    plain = var.role == "temp" and not var.version and var.overwrites is None
    return plain and var.type != TOKEN and not var.type.is_array and not var.type.is_open


def _return_ends(graph: Graph) -> None:
    """Return the first output of every op none of whose outputs is used."""
    for op in graph.ops():
        if not any(_is_used(graph, var) for var in op.writes()) and (var := _main_output(op)):
            graph.results.append(var)


def _is_used(graph: Graph, var: Var) -> bool:
    read = graph.readers(var) or graph.overwriter(var) is not None
    return bool(read) or var in graph.results or var.role == "param"


def _main_output(op: Op) -> Var | None:
    """Return the main output of an op: the first of the first output slot of its class."""
    slots = [slot for slot in op.defn.outputs() if slot in op.outputs]
    output = op.outputs[slots[0]][0] if slots else None
    return output if output is not None and output.type != TOKEN else None
