"""The graph of a composite op's steps, for type inference and reference evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from compiler.errors import CompileError
from compiler.ir.conversion.block_walk import BlockWalk, Slots
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import OpDef, listed, type_of
from compiler.ir.opdef.composite_steps import CompositeSteps
from compiler.ir.opdef.half_precision import map_value
from compiler.ir.program import Program
from compiler.ir.types import Array, TensorType
from compiler.support.dataclass import dataclass

__all__ = ["evaluate", "infer_types"]

Values: TypeAlias = Mapping[str, Any]
"""Arrays or types by slot: a list for a `many` slot, None for an empty one."""


@dataclass(frozen=True)
class ExpansionGraph:
    """The graph of the steps, with input vars by name and output vars by slot."""

    graph: Graph
    feeds: Mapping[str, Var]
    outputs: Mapping[str, Any]


def infer_types(op: OpDef, types: Values) -> dict[str, Any]:
    """Infer the types of the outputs by slot."""
    step_graph = _step_graph(op, types)
    return {slot: _each(value, _type) for slot, value in step_graph.outputs.items()}


def evaluate(op: OpDef, values: Values) -> dict[str, Any]:
    """Evaluate the steps one by one; returns the output arrays by slot."""
    step_graph = _step_graph(
        op, {slot: map_value(type_of, value) for slot, value in values.items()}
    )
    arrays = {step_graph.feeds[name]: array for name, array in _named(values)}
    for step in step_graph.graph.ops():
        arrays.update(_evaluated(step, arrays))
    return {slot: _each(value, arrays.__getitem__) for slot, value in step_graph.outputs.items()}


def _step_graph(op: OpDef, types: Values) -> ExpansionGraph:
    """Build the graph; a CompileError of a step is prefixed with the kind of the composite op."""
    walk = BlockWalk(Program().blocks[0], Graph(op.kind))
    feeds = {name: walk.graph.feed(name, type) for name, type in _named(types)}
    walk.current.update(feeds)
    _share_lod(op, walk, feeds, types)
    steps = _steps(op, types)
    try:
        cast(Any, op).expand(steps)
        for step in steps.ops:
            walk.add(step)
    except CompileError as error:
        raise type(error)(_prefixed(op.kind, error.message), hint=error.hint) from None
    return ExpansionGraph(walk.graph, feeds, _outputs(op, walk, steps))


def _steps(op: OpDef, types: Values) -> CompositeSteps:
    """Return an empty recorder of steps for inputs named by slot."""
    slots = [slot for slot in types if slot in op.slots and not op.slots[slot].companion]
    names = {slot: [name for name, _ in _named({slot: types[slot]})] for slot in slots}
    inputs = {slot: slot_names for slot, slot_names in names.items() if slot_names}
    return CompositeSteps(op.kind, inputs, {slot: listed(types[slot]) for slot in inputs})


def _share_lod(op: OpDef, walk: BlockWalk, feeds: Mapping[str, Var], types: Values) -> None:
    """Register the LoD inputs with the walk: all levels, or one level per item of a `many` slot."""
    for slot in op.inputs().values():
        if slot.companion == "lod" and types.get(slot.name):
            levels = [feeds[name] for name, _ in _named({slot.name: types[slot.name]})]
            of = [feeds[name] for name, _ in _named({slot.of: types[slot.of]})]
            owned = [[level] for level in levels] if op.slots[slot.of].many else [levels]
            walk.companions.lods |= dict(zip(of, owned, strict=True))


def _outputs(op: OpDef, walk: BlockWalk, steps: CompositeSteps) -> dict[str, Any]:
    """Return the output vars by slot, including the declared companions."""
    vars = {slot: [walk.current[name] for name in names] for slot, names in steps.written.items()}
    outputs = vars | _companions(op, walk, vars)
    return {slot: op.slots[slot].hold(values) for slot, values in outputs.items()}


def _companions(op: OpDef, walk: BlockWalk, vars: Slots) -> Slots:
    """Return the LoD and row indices of outputs where the op declares them."""
    companions: Slots = {}
    for slot in op.outputs().values():
        owner = next(iter(vars.get(slot.of, ())), None)
        if owner is not None and slot.companion == "lod":
            companions[slot.name] = walk.companions.lod_of(owner)
        elif owner is not None and walk.companions.rows_of(owner):
            companions[slot.name] = [walk.companions.rows_of(owner)[0]]
    return companions


def _each(value: Any, function: Callable[[Var], Any]) -> Any:
    """Apply a function to the value of a slot, or to each item of a list."""
    if isinstance(value, list):
        return [function(item) for item in cast("list[Var]", value)]
    return function(value)


def _type(var: Var) -> TensorType:
    return var.type


def _prefixed(kind: str, message: str) -> str:
    return message if message.startswith(kind) else f"{kind}: {message}"


def _named(values: Values) -> Iterator[tuple[str, Any]]:
    """Name the values in slots: `X` for a single one, `X.0`, `X.1`, … for a list."""
    for slot, value in values.items():
        if isinstance(value, list):
            items = enumerate(cast("list[Any]", value))
            yield from ((f"{slot}.{index}", item) for index, item in items)
        elif value is not None:
            yield slot, value


def _evaluated(op: Op, arrays: Mapping[Var, Array]) -> Iterator[tuple[Var, Array]]:
    slots = op.defn.slots
    inputs = {slot: slots[slot].hold([arrays[v] for v in vs]) for slot, vs in op.inputs.items()}
    results = op.defn.evaluate(inputs)
    for slot, vars in op.outputs.items():
        outputs = listed(results[slot]) if slots[slot].many else [results[slot]]
        yield from ((v, np.asarray(a)) for v, a in zip(vars, outputs, strict=False))
