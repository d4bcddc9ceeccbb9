"""What passes share that find one var to hold what another holds: who may read the other instead.

A var that is written over holds its value only until then, and what a user fetches keeps its name,
so not every two vars of one value are one.
"""

from __future__ import annotations

from compiler.ir.graph import Graph, Op, Var


def merge(g: Graph, op: Op, copy: Var, original: Var) -> str:
    """Give the readers of `copy` the var `original`, which holds the same, and take `op` out.

    The op makes `copy`, and nothing else that anybody reads. A copy that is returned keeps its
    name: if the original is made for this op alone, its maker writes the copy instead. Returns why
    nothing was done; empty where it was.
    """
    others = (var for var in op.writes() if var is not copy and is_wanted(g, var))
    if why := refuse(g, copy, original):
        return why
    for var in others:
        return f"{var.label!r} is read"
    if copy in g.results:
        return _take_over(g, op, copy, original)
    g.remove(op)
    g.replace_uses(copy, original)
    return ""


def refuse(g: Graph, copy: Var, original: Var) -> str:
    """Why nobody may read `original` in place of `copy`; empty where they may."""
    if copy.type != original.type:
        return f"{copy.label!r} is {copy.type}, and {original.label!r} {original.type}"
    if copy.role != "temp" or copy.overwrites is not None:
        return f"{copy.label!r} lives in the storage of another"
    for var in (copy, original):
        if g.overwriter(var) is not None:
            return f"{var.label!r} is written over later"
    return ""


def is_wanted(g: Graph, var: Var) -> bool:
    """True where a var is read, or is state, which outlives the run."""
    return var.role == "param" or is_read(g, var)


def is_read(g: Graph, var: Var) -> bool:
    """True where an op reads a var, writes over it, or the graph returns it."""
    return bool(g.nx.out_degree[var]) or g.overwriter(var) is not None or var in g.results


def drop_idle(g: Graph, op: Op) -> None:
    """Take out an op without effects of which nobody wants anything."""
    if not any(is_wanted(g, var) for var in op.writes()):
        g.remove(op)


def _take_over(g: Graph, op: Op, copy: Var, original: Var) -> str:
    """Let the op that makes the original for this op alone write the copy in its place."""
    maker, fetched = g.producer(original), f"{copy.label!r} is fetched, and {original.label!r}"
    if maker is None:
        return f"{fetched} is {'fed' if original.role == 'feed' else 'state'}"
    if maker.body is not None or original.overwrites is not None:
        return f"{fetched} is made by a block"
    if g.readers(original) != [op] or original in g.results:
        return f"{fetched} has other readers"
    g.remove(op)
    outputs = {
        slot: [copy if var is original else var for var in vars]
        for slot, vars in maker.outputs.items()
    }
    g.replace(maker, maker.kind, maker.inputs, outputs, maker.attrs)
    return ""
