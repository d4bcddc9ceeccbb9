"""Interpreter: evaluates a graph op by op in plain NumPy, in the graph's order.

The interpreter is the reference that every optimisation is checked against, so it is slow, small
and strict about memory labels: a var with a slot is live only until its bytes are overwritten, and
reading it later returns poison (NaN, or the smallest integer) instead of a stale value. An error in
`reuse_memory` thus shows as a changed number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, cast

import numpy as np

from compiler.errors import CompileError
from compiler.ir.analysis.memory_writes import Aliases
from compiler.ir.conversion.block_walk import CAPTURED, RUNS, WRITTEN
from compiler.ir.graph import Graph, Op, Var, without_tokens
from compiler.ir.opdef import Slot, listed
from compiler.ir.region import are_disjoint
from compiler.ir.types import Array, TensorType, is_floating

Watch = Callable[[Op, list[tuple[Var, Array]]], list[tuple[Var, Array]]]
"""Callback that receives an op's outputs and returns the arrays to use in their place."""


def run(
    graph: Graph,
    feed: Mapping[str, Array],
    params: MutableMapping[str, Array],
    watch: Watch | None = None,
) -> list[Array]:
    """Evaluate a graph once; return the arrays of its results and update `params` in place.

    `watch` is called for every op of the graph, but not for those in bodies. Raises KeyError if a
    feed or parameter is missing.
    """
    memory = _Memory()
    for var in graph.feeds():
        memory.write(var, feed[var.name])
    for var in graph.params():
        if graph.producer(var) is None:
            memory.write(var, params[var.name])
    for op in graph.ops():
        _step(op, memory, watch)
    for var in graph.vars():
        if var.role == "param" and graph.overwriter(var) is None:
            params[var.name] = np.array(memory.read(var))
    return [memory.read(var) for var in graph.results]


class _Memory:
    """Arrays by var; each byte of a slot holds one var at a time, or a view of it."""

    def __init__(self) -> None:
        self.arrays: dict[Var, Array] = {}
        self.holders: dict[int, list[Var]] = {}
        self.deleted: set[Var] = set()

    def read(self, var: Var) -> Array:
        """Return the array of a var; poison if its bytes have been overwritten."""
        if var not in self.arrays or var in self.deleted:
            raise CompileError(
                f"{var.label!r} is read after it was deleted or before it is written"
            )
        is_valid = var.slot is None or var in self.holders[var.slot]
        return self.arrays[var] if is_valid else _poison(self.arrays[var])

    def write(self, var: Var, array: Array) -> None:
        """Store an array."""
        self.arrays[var] = array
        if var.slot is not None:
            self.holders.setdefault(var.slot, []).append(var)

    def invalidate(self, aliases: Aliases[Var], var: Var) -> None:
        """Invalidate the vars in the bytes that an op overwrites when it writes `var`."""
        if var.slot is None:
            return
        regions, same = aliases.written(var), aliases.linked(var)
        self.holders[var.slot] = [
            holder
            for holder in self.holders.get(var.slot, [])
            if holder in same
            or all(are_disjoint(var.type, r, holder.type, holder.region) for r in regions)
        ]

    def delete(self, var: Var) -> None:
        """Discard the data of a var; its shape remains readable."""
        data = self.arrays[var]
        if not var.type.is_array:
            self.arrays[var] = np.broadcast_to(np.zeros((), data.dtype), data.shape)
        self.deleted.add(var)


def _poison(array: Array) -> Array:
    if is_floating(array.dtype):
        return np.full_like(array, np.nan)
    return np.full_like(array, True if array.dtype.kind == "b" else np.iinfo(array.dtype).min)


def _step(op: Op, memory: _Memory, watch: Watch | None) -> None:
    if op.kind == "delete_var":
        for var in op.reads():
            memory.delete(var)
        return
    results = _run_body(op, memory) if op.body is not None else _evaluate(op, memory)
    aliases = Aliases(op)
    for var, array in results if watch is None else watch(op, results):
        memory.invalidate(aliases, var)
        memory.write(var, array)


def _evaluate(op: Op, memory: _Memory) -> list[tuple[Var, Array]]:
    slots = op.defn.slots
    arrays = {
        slot: [memory.arrays[var] if slots[slot].shape_only else memory.read(var) for var in vars]
        for slot, vars in without_tokens(op.inputs).items()
    }
    return evaluate(op, arrays)


def evaluate(op: Op, arrays: Mapping[str, Sequence[Array]]) -> list[tuple[Var, Array]]:
    """Evaluate an op without a body on the arrays of its slots; return its outputs with their
    arrays.
    """
    slots = op.defn.slots
    results = op.defn.evaluate({slot: slots[slot].hold(value) for slot, value in arrays.items()})
    return [
        (var, array if var.type.is_array else np.asarray(array))
        for slot, vars in without_tokens(op.outputs).items()
        for var, array in zip(vars, _slot_values(slots[slot], results[slot]), strict=False)
    ]


def _slot_values(slot: Slot, value: Any) -> list[Any]:
    """Return the values of a slot; a tensor array is one value, although it is a list."""
    return listed(value) if slot.many else [value]


def _run_body(op: Op, memory: _Memory) -> list[tuple[Var, Array]]:
    """Run an op's body as often as the op requires; return its outputs and the values saved per
    run.
    """
    assert op.body is not None
    feed = {
        var.name: memory.read(outer)
        for var, outer in zip(
            _captured_feeds(op, op.body), op.inputs.get(CAPTURED, []), strict=True
        )
    }
    written = op.outputs.get(WRITTEN, [])
    leaves = op.body.results[: len(written)]
    left: list[Array] = [feed.get(var.name, _default_output(var.type)) for var in leaves]
    runs: list[list[Array]] = []
    for values in _iterations(op, memory, feed):
        pairs = zip(op.body.feeds(), values, strict=False)
        results = run(op.body, feed | {var.name: array for var, array in pairs}, {})
        left, saved = results[: len(written)], results[len(written) :]
        names = [var.name for var in leaves]
        feed |= {name: array for name, array in zip(names, left, strict=True) if name in feed}
        runs.append(saved)
    kept_runs = [(var, cast(Array, runs)) for var in op.outputs.get(RUNS, [])]
    return [*zip(written, left, strict=True), *kept_runs]


def _captured_feeds(op: Op, body: Graph) -> list[Var]:
    """Return the feeds of a body that are captured outer vars; they follow the saved values."""
    feeds = body.feeds()
    return feeds[len(feeds) - len(op.inputs.get(CAPTURED, [])) :]


def _iterations(op: Op, memory: _Memory, feed: Mapping[str, Array]) -> Iterator[Sequence[Array]]:
    """Yield the saved values for every run of the body; `feed` changes in between."""
    if op.kind == "unwind":
        yield from reversed(cast("list[list[Array]]", memory.read(op[RUNS])))
        return
    conditions = op.inputs["Cond"]
    names = {outer: inner.name for inner, outer in _pairs(op)}
    holds = np.size if op.defn.attributes["any_element"] else np.all
    while all(holds(feed[names[v]] if v in names else memory.read(v)) for v in conditions):
        yield ()
        if op.kind == "if":
            return


def _pairs(op: Op) -> list[tuple[Var, Var]]:
    assert op.body is not None
    return list(zip(_captured_feeds(op, op.body), op.inputs.get(CAPTURED, []), strict=True))


def _default_output(type: TensorType) -> Array:
    """Return the output of a body that never ran, if no value existed before: poison of the right
    type.
    """
    shape = [size if isinstance(size, int) else 1 for size in type.shape]
    return cast(Array, []) if type.is_array else _poison(np.zeros(shape, type.dtype.numpy))
