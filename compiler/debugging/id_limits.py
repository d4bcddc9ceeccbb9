"""Which integer feeds of a graph are ids of an embedding, and below which number."""

from __future__ import annotations

from compiler.ir.graph import Graph, Var
from compiler.ir.types import DType

LOOKUPS = frozenset({"lookup_table", "lookup_table_v2", "fused_embedding_seq_pool"})
"""Ops that read the rows `Ids` of `W`."""

KEEPS_VALUES = frozenset(
    "assign concat flatten flatten2 flatten_contiguous_range lod_reset reshape reshape2 "
    "sequence_reverse slice split squeeze squeeze2 stack strided_slice tile transpose transpose2 "
    "unbind unsqueeze unsqueeze2 unstack".split()
)
"""Ops whose outputs have the elements of their inputs."""

TAKES_ANY = frozenset(
    "equal not_equal less_than less_equal greater_than greater_equal shape".split()
)
"""Ops that accept integers of any value."""


def id_limits(graph: Graph) -> dict[str, int]:
    """Return the number of rows of the smallest table that an integer feed's elements select.

    A feed that other ops read as well, which may require other values, is left out.
    """
    limits = {feed.name: _limit(graph, feed, set()) for feed in graph.feeds() if _is_integer(feed)}
    return {name: limit for name, limit in limits.items() if limit}


def _is_integer(var: Var) -> bool:
    return var.type.dtype in (DType.INT32, DType.INT64) and not var.type.is_array


def _limit(graph: Graph, var: Var, visited: set[Var]) -> int | None:
    """The least number of rows of the tables that read a var; 0 if another op does, None for none.

    `visited` are the vars whose readers have been looked at.
    """
    limits: list[int] = []
    visited.add(var)
    for op in graph.readers(var):
        if op.kind in LOOKUPS and var in op.inputs["Ids"]:
            rows = op["W"].type.shape[0]
            limits.append(rows if isinstance(rows, int) else 0)
        elif op.kind in KEEPS_VALUES:
            later = (_limit(graph, out, visited) for out in op.writes() if out not in visited)
            limits += [limit for limit in later if limit is not None]
        elif op.kind not in TAKES_ANY:
            return 0
    return min(limits, default=None)
