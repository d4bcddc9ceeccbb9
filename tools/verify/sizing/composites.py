"""Problems of composite ops, which become other ops before there is a graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

import fluid
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.opdef import find, listed
from runtime.sizes import LOD
from tools.verify.sizing.problem import Built, Problem


def composite_problem(op: str, attrs: Any, values: Mapping[str, Any]) -> Problem:
    """The problem of a program of one op; its results are all outputs."""
    feed = dict[str, np.ndarray]()
    slots = find(op).slots
    lods = {slot.of: values.get(slot.name) for slot in slots.values() if slot.companion == "lod"}
    for slot in (slot for slot in values if not slots[slot].companion):
        for place, array in enumerate(listed(values[slot])):
            name = f"{slot}.{place}"
            feed[name] = np.ascontiguousarray(array)
            levels = lods.get(slot) or []
            levels = [levels[place]] if levels and slots[slot].many else levels
            feed |= {f"{name}{LOD}{n}": level for n, level in enumerate(levels)}
    return Problem(partial(_graph, op, attrs, feed), feed, {})


def _graph(op: str, attrs: Any, feed: Mapping[str, np.ndarray]) -> Built:
    program = fluid.Program()
    block, inputs = program.global_block(), dict[str, list[str]]()
    for name, array in feed.items():
        if LOD not in name:
            levels = sum(fed_name.startswith(name + LOD) for fed_name in feed)
            block.create_var(name=name, shape=array.shape, dtype=str(array.dtype), lod_level=levels)
            inputs.setdefault(name.partition(".")[0], []).append(name)
    slots = [slot for slot in find(op).outputs().values() if not slot.companion]
    needed = [slot for slot in slots if not slot.optional] or slots
    outputs = {slot.name: [f"{slot.name}:0"] for slot in needed}
    for names in outputs.values():
        block.create_var(name=names[0], dtype="float32")
    block.append_op(op, inputs, outputs, attrs)
    fetched = [name for names in outputs.values() for name in names]
    graph = to_graph(program, {name: array.shape for name, array in feed.items()}, fetched)
    return graph, [var.label for var in graph.results]
