"""Replacement of a var by another one of the same value: when it is legal.

An overwritten var has its value only until then, and a fetched var keeps its name, so not any two
vars of equal value are interchangeable.
"""

from __future__ import annotations

from compiler.ir.graph import Graph, Op, Var


def merge(g: Graph, op: Op, copy: Var, original: Var) -> str:
    """Redirect the readers of `copy` to `original`, which has the same value, and remove `op`.

    The op computes `copy`, and no other value that is read. A fetched copy keeps its name: if the
    original is computed for this op alone, its producer writes the copy instead. Returns the reason
    if nothing was changed; else an empty text.
    """
    others = (var for var in op.writes() if var is not copy and is_wanted(g, var))
    if why := replacement_obstacle(g, copy, original):
        return why
    for var in others:
        return f"{var.label!r} is read"
    if copy in g.results:
        return _rename_output(g, op, copy, original)
    g.remove(op)
    g.replace_uses(copy, original)
    return ""


def replacement_obstacle(g: Graph, copy: Var, original: Var) -> str:
    """Return why `original` must not be read in place of `copy`; empty if it may."""
    if copy.type != original.type:
        return f"{copy.label!r} is {copy.type}, and {original.label!r} {original.type}"
    if copy.role != "temp" or copy.overwrites is not None:
        return f"{copy.label!r} shares the storage of another value"
    for var in (copy, original):
        if g.overwriter(var) is not None:
            return f"{var.label!r} is overwritten later"
    return ""


def is_wanted(g: Graph, var: Var) -> bool:
    """Whether a var is read, or is state, which outlives the run."""
    return var.role == "param" or is_read(g, var)


def is_read(g: Graph, var: Var) -> bool:
    """Whether an op reads or overwrites a var, or the graph returns it."""
    return bool(g.nx.out_degree[var]) or g.overwriter(var) is not None or var in g.results


def remove_if_unused(g: Graph, op: Op) -> None:
    """Remove an op without effects none of whose outputs is used."""
    if not any(is_wanted(g, var) for var in op.writes()):
        g.remove(op)


def _rename_output(g: Graph, op: Op, copy: Var, original: Var) -> str:
    """Make the producer of the original, which this op alone reads, write the copy instead."""
    maker, fetched = g.producer(original), f"{copy.label!r} is fetched, and {original.label!r}"
    if maker is None:
        return f"{fetched} is {'a feed' if original.role == 'feed' else 'state'}"
    if maker.body is not None or original.overwrites is not None:
        return f"{fetched} is computed by a block"
    if g.readers(original) != [op] or original in g.results:
        return f"{fetched} has other readers"
    g.remove(op)
    outputs = {
        slot: [copy if var is original else var for var in vars]
        for slot, vars in maker.outputs.items()
    }
    g.replace(maker, maker.kind, maker.inputs, outputs, maker.attrs)
    return ""
