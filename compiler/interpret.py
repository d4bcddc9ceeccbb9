"""What a graph means: op by op, in plain NumPy, in the order the graph has.

The interpreter is the definition every optimisation is held against, so it is slow, small and
strict about labels: a var with a slot lives only while that slot holds it, and reading it later
gives poison (NaN, or the smallest integer) instead of a stale value. A wrong `reuse_memory` shows
as a number that moved.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np

from compiler.errors import CompileError
from compiler.ir.convert import CAPTURED, WRITTEN
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import listed
from compiler.ir.types import Array


def run(graph: Graph, feed: Mapping[str, Array], params: MutableMapping[str, Array]) -> list[Array]:
    """Compute a graph once; returns the arrays of its results and updates `params` in place.

    Raises KeyError for a feed or parameter that is missing.
    """
    memory = _Memory()
    for var in graph.feeds():
        memory.write(var, feed[var.name])
    for var in graph.params():
        if graph.producer(var) is None:
            memory.write(var, params[var.name])
    for op in graph.ops():
        _step(op, memory)
    for var in graph.vars():
        if var.role == "param" and graph.overwriter(var) is None:
            params[var.name] = np.array(memory.read(var))
    return [memory.read(var) for var in graph.results]


class _Memory:
    """Arrays by var; a slot holds one var at a time."""

    def __init__(self) -> None:
        self.arrays: dict[Var, Array] = {}
        self.holder: dict[int, Var] = {}
        self.deleted: set[Var] = set()

    def read(self, var: Var) -> Array:
        """The array of a var; poison where its slot holds another var by now."""
        if var not in self.arrays or var in self.deleted:
            raise CompileError(
                f"{var.label!r} is read after it was deleted or before it is written"
            )
        held = var.slot is None or self.holder[var.slot] is var
        return self.arrays[var] if held else _poison(self.arrays[var])

    def write(self, var: Var, array: Array) -> None:
        """Store an array; whatever stood in the same slot is lost."""
        self.arrays[var] = array
        if var.slot is not None:
            self.holder[var.slot] = var

    def delete(self, var: Var) -> None:
        """Forget the data of a var; its shape may still be asked for."""
        gone = self.arrays[var]
        self.arrays[var] = np.broadcast_to(np.zeros((), gone.dtype), gone.shape)
        self.deleted.add(var)


def _poison(array: Array) -> Array:
    if array.dtype.kind == "f":
        return np.full_like(array, np.nan)
    return np.full_like(array, True if array.dtype.kind == "b" else np.iinfo(array.dtype).min)


def _step(op: Op, memory: _Memory) -> None:
    if op.kind == "delete_var":
        for var in op.reads():
            memory.delete(var)
        return
    results = _run_body(op, memory) if op.body is not None else _evaluate(op, memory)
    for var, array in results:
        memory.write(var, array)


def _evaluate(op: Op, memory: _Memory) -> list[tuple[Var, Array]]:
    slots = op.defn.slots
    arrays = {
        slot: [memory.arrays[var] if slots[slot].shape_only else memory.read(var) for var in vars]
        for slot, vars in op.inputs.items()
    }
    return evaluate(op, arrays)


def evaluate(op: Op, arrays: Mapping[str, Sequence[Array]]) -> list[tuple[Var, Array]]:
    """What an op without a body makes of the arrays in its slots: each output with its array."""
    slots = op.defn.slots
    results = op.defn.evaluate({slot: slots[slot].hold(given) for slot, given in arrays.items()})
    return [
        (var, np.asarray(array))
        for slot, vars in op.outputs.items()
        for var, array in zip(vars, listed(results[slot]), strict=False)
    ]


def _run_body(op: Op, memory: _Memory) -> list[tuple[Var, Array]]:
    """Run a conditional's body if its condition holds; else its outputs keep what they carry."""
    assert op.body is not None
    captured = [memory.read(var) for var in op.inputs.get(CAPTURED, [])]
    feed = {var.name: array for var, array in zip(op.body.feeds(), captured, strict=True)}
    written = op.outputs.get(WRITTEN, [])
    if bool(np.all(memory.read(op["Cond"]))):
        return list(zip(written, run(op.body, feed, {}), strict=True))
    return [(var, feed[var.name]) for var in written if var.name in feed]
