"""Conversion of `recurrent`, a block run for every step of its inputs, to a loop.

In an iteration, each input's name denotes its current step, and each ex-state the state of the
previous iteration. The outputs are collected in an array and stacked after the loop. The gradient
runs over the iterations in reverse and collects the gradients of the inputs in the same way.
"""

from __future__ import annotations

from typing import Any

from compiler.errors import CompileError
from compiler.ir.conversion.block_walk import MAX_WIDENINGS, RUNS, BlockWalk, SavedValue, copying
from compiler.ir.conversion.control_flow import (
    entry_copy,
    gradient_blocks,
    save_value,
    saved_values,
)
from compiler.ir.conversion.control_flow_grad import (
    TOTAL,
    add_to_total,
    inner_gradient,
    other_updates,
    zeros_like,
)
from compiler.ir.dims import Size
from compiler.ir.graph import Var
from compiler.ir.opdef import find
from compiler.ir.program import EMPTY, GRAD, OpDesc
from compiler.ir.types import TensorType

STEPS = "@STEPS"
"""The suffix of the name of all steps of a variable."""
INDEX = "@INDEX"
"""The index of the step of an iteration."""


def recurrent(walk: BlockWalk, op: OpDesc) -> None:
    """Convert `recurrent` to a `loop`."""
    outputs = op.outputs.get("outputs", [])
    counter = _Counter(walk, op)
    for state, initial in _states(op):
        source = walk.read(initial, op)
        walk.copied(state, source, source.type)
    for name in outputs:
        _create_step_array(walk, name, walk.declared(name), op)
    for _ in range(MAX_WIDENINGS):
        inner = counter.inner(walk.inner(walk.body_of(op)), op)
        _convert_iteration(walk, inner, op)
        left = [*(state for state, _ in _states(op)), *(name + STEPS for name in outputs)]
        left = {name: name for name in [*left, *counter.end(inner)]}
        if not walk.widen(inner, left):
            saved, runs = _saved(inner, op)
            walk.put("loop", op, {"Cond": [walk.current[counter.more]]}, inner, left, saved, runs)
            _stack_outputs(walk, inner, op)
            return
    raise CompileError("the sizes in the block of recurrent do not converge", source=op.source)


def _states(op: OpDesc) -> list[tuple[str, str]]:
    """Pair each ex-state with the outer variable of its initial value."""
    before = op.attrs.get("ex_states", [])
    return list(zip(before, op.inputs.get("initial_states", []), strict=True))


def _next_states(op: OpDesc) -> list[str]:
    """Return the state that an iteration computes for each ex-state."""
    return op.attrs.get("states", [])


class _Counter:
    """The loop counter of one `recurrent` op."""

    def __init__(self, walk: BlockWalk, op: OpDesc) -> None:
        stem = op.outputs["outputs"][0] if op.outputs.get("outputs") else op.inputs["inputs"][0]
        self.step, self.count, self.more = (f"{stem}@{n}" for n in ("STEP", "COUNT", "MORE"))
        first = walk.read(op.inputs["inputs"][0], op)
        emit(walk, self.count, "step_count", {"X": [first]}, op)
        number = {"shape": [1], "value": 0.0, "dtype": 3}
        emit(walk, self.step, "fill_constant", {}, op, **number)
        self._compare(walk, op)

    def _compare(self, walk: BlockWalk, op: OpDesc) -> None:
        sides = {"X": [walk.read(self.step, op)], "Y": [walk.read(self.count, op)]}
        emit(walk, self.more, "less_than", sides, op)

    def inner(self, inner: BlockWalk, op: OpDesc) -> BlockWalk:
        """Capture the counter in a body and compute the index of its step."""
        for name in (self.step, self.more):
            assert inner.outer is not None
            inner.current.capture(name, inner.outer.read(name, op))
        sides = {"I": [inner.current[self.step]], "Count": [inner.read(self.count, op)]}
        emit(inner, INDEX, "step_index", sides, op, reverse=bool(op.attrs.get("reverse", False)))
        self.op = op
        return inner

    def end(self, inner: BlockWalk) -> list[str]:
        """Increment the counter at the end of a body; returns the names of updated variables."""
        step = {"X": [inner.current[self.step]]}
        emit(inner, self.step, "increment", step, self.op, step=1.0)
        self._compare(inner, self.op)
        return [self.step, self.more]


def _convert_iteration(walk: BlockWalk, inner: BlockWalk, op: OpDesc) -> None:
    """Convert one iteration: slice input steps, run the block, carry states, collect outputs."""
    for name in op.inputs["inputs"]:
        whole = inner.current.capture(name + STEPS, walk.read(name, op))
        emit(inner, name, "take_step", {"X": [whole], "I": [inner.current[INDEX]]}, op)
    names = [state for state, _ in _states(op)]
    names += [name + STEPS for name in op.outputs.get("outputs", [])]
    for name in names:
        inner.current.capture(name, walk.read(name, op))
    for inner_op in inner.block.ops:
        inner.add(inner_op)
    _assign_states(inner, dict(zip((s for s, _ in _states(op)), _next_states(op), strict=True)), op)
    for name in op.outputs.get("outputs", []):
        _add_step(inner, name + STEPS, inner.read(name, op), op)


def _assign_states(inner: BlockWalk, states: dict[str, str], op: OpDesc) -> None:
    """Assign to each state its new value, in parallel: all are read before any is overwritten."""
    values = {target: inner.read(source, op) for target, source in states.items()}
    for target, value in values.items():
        if value.role == "feed":
            values[target] = emit(inner, f"{target}@NEXT", copying(value), {"X": [value]}, op)
    for target, value in values.items():
        emit(inner, target, "assign", {"X": [value]}, op)


def _add_step(inner: BlockWalk, name: str, value: Var, op: OpDesc) -> None:
    sides = {"X": [value], "I": [inner.current[INDEX]], "Array": [inner.current[name]]}
    emit(inner, name, "write_to_array", sides, op)


def _create_step_array(walk: BlockWalk, name: str, whole: TensorType, op: OpDesc) -> None:
    """Create an empty array for the steps of a variable."""
    sizes = [str(size) for size in whole.shape[1:]]
    attrs = {"dtype": whole.dtype.code, "sizes": sizes}
    emit(walk, name + STEPS, "empty_array", {}, op, **attrs)


def _saved(inner: BlockWalk, op: OpDesc) -> tuple[list[SavedValue], str]:
    """Return what each iteration saves: its index, initial states, local variables."""
    runs = next(iter(op.outputs.get("step_scopes", [])), "")
    gradients = gradient_blocks(inner.block, runs)
    if not gradients:
        return [], ""
    states = [state for state, _ in _states(op)]
    own = [value for value in saved_values(inner, gradients, [], op) if value.name not in states]
    entries = [save_value(inner, name, entry_copy(inner, name, op.source)) for name in states]
    return [save_value(inner, INDEX, None), *entries, *own], runs


def _stack_outputs(walk: BlockWalk, inner: BlockWalk, op: OpDesc) -> None:
    count = walk.read(op.inputs["inputs"][0], op).type.shape[0]
    for name in op.outputs.get("outputs", []):
        _stack(walk, name, name + STEPS, (count, *inner.current[name].type.shape), op)


def _stack(walk: BlockWalk, name: str, steps: str, shape: tuple[Size, ...], op: OpDesc) -> None:
    sizes = [str(size) for size in shape]
    emit(walk, name, "stack_steps", {"X": [walk.read(steps, op)]}, op, sizes=sizes)


def emit(
    walk: BlockWalk, name: str, kind: str, inputs: dict[str, list[Var]], op: OpDesc, **attrs: Any
) -> Var:
    """Add a graph-only op; its output becomes the current var of a name."""
    defn = find(kind)(attrs)
    type: TensorType = defn.infer_types(defn.types_of(inputs))["Out"]
    out = walk.graph.another(name, type)
    walk.graph.op(kind, inputs, {"Out": [out]}, attrs, op.source, last=True)
    return walk.current.define(name, out)


# ---- the gradient ------------------------------------------------------------------------------


def recurrent_gradient(walk: BlockWalk, op: OpDesc) -> None:
    """Convert `recurrent_grad`: an `unwind` over the iterations."""
    inputs, params = _pairs(op, "inputs"), _pairs(op, "parameters")
    runs = op.inputs["step_scopes"][0]
    for state, initial in _states(op):
        walk.current.define(state + GRAD, zeros_like(walk, initial, op, state + GRAD))
    for name, gradient in params.items():
        walk.current.define(gradient, zeros_like(walk, name, op, gradient))
    for name in inputs:
        _create_step_array(walk, name + GRAD, walk.read(name, op).type, op)
    for _ in range(MAX_WIDENINGS):
        inner, left = _convert_gradient_body(walk, op, runs, inputs, params)
        if not walk.widen(inner, left):
            walk.put("unwind", op, {RUNS: [walk.read(runs, op)]}, inner, left)
            _finish_gradients(walk, inner, op, inputs)
            return
    raise CompileError("the sizes in the block of recurrent_grad do not converge", source=op.source)


def _pairs(op: OpDesc, slot: str) -> dict[str, str]:
    """Map the variables of a slot to the names of their requested gradients."""
    gradients = op.outputs.get(slot + GRAD, [])
    pairs = zip(op.inputs.get(slot, []), gradients, strict=False)
    return {name: gradient for name, gradient in pairs if gradient != EMPTY}


def _convert_gradient_body(
    walk: BlockWalk, op: OpDesc, runs: str, inputs: dict[str, str], params: dict[str, str]
) -> tuple[BlockWalk, dict[str, str]]:
    inner = inner_gradient(walk, op, runs)
    for state, _ in _states(op):
        inner.current.capture(state + GRAD, walk.read(state + GRAD, op))
    for name, gradient in params.items():
        inner.current.capture(name + GRAD + TOTAL, walk.read(gradient, op))
    for name in inputs:
        inner.current.capture(name + GRAD + STEPS, walk.read(name + GRAD + STEPS, op))
    others = other_updates(walk, inner)
    walk.capture_updated(op, others, inner)
    _begin_iteration(walk, inner, op)
    for inner_op in inner.block.ops:
        inner.add(inner_op)
    left = _end_iteration(inner, op, inputs, params)
    left |= {name: name for name in others if name in inner.current}
    return inner, {m: t for m, t in left.items() if inner.current[m].role != "feed"}


def _begin_iteration(walk: BlockWalk, inner: BlockWalk, op: OpDesc) -> None:
    """Set the gradients of an iteration's results: its outputs and carried states."""
    gradients = op.inputs.get("outputs" + GRAD, [])
    for name, gradient in zip(op.inputs.get("outputs", []), gradients, strict=False):
        if gradient != EMPTY and walk.has_value(gradient):
            whole = inner.current.capture(name + GRAD + STEPS, walk.read(gradient, op))
            sides = {"X": [whole], "I": [inner.current[INDEX]]}
            emit(inner, name + GRAD, "take_step", sides, op)
        elif inner.has_value(name):
            inner.current.define(name + GRAD, zeros_like(inner, name, op, name + GRAD))
    for (after, _), state in zip(_states(op), _next_states(op), strict=True):
        carried = {"X": [inner.current[after + GRAD]]}
        emit(inner, state + GRAD, "assign", carried, op)
        del inner.current[after + GRAD]


def _end_iteration(
    inner: BlockWalk, op: OpDesc, inputs: dict[str, str], params: dict[str, str]
) -> dict[str, str]:
    """Carry the gradients of states, collect those of inputs, and sum those of parameters."""
    for name in params:
        add_to_total(inner, name, op)
    for name in inputs:
        carried = inner.current.get(name + GRAD)
        value = carried if carried is not None else zeros_like(inner, name, op, name + GRAD)
        _add_step(inner, name + GRAD + STEPS, inner.companions.densified(value), op)
    for state, _ in _states(op):
        carried = inner.current.get(state + GRAD)
        value = carried if carried is not None else zeros_like(inner, state, op, state + "@NONE")
        emit(inner, state + GRAD, "assign", {"X": [inner.companions.densified(value)]}, op)
    left = {state + GRAD: state + GRAD for state, _ in _states(op)}
    left |= {name + GRAD + TOTAL: gradient for name, gradient in params.items()}
    return left | {name + GRAD + STEPS: name + GRAD + STEPS for name in inputs}


def _finish_gradients(
    walk: BlockWalk, inner: BlockWalk, op: OpDesc, inputs: dict[str, str]
) -> None:
    """After the loop, stack the gradients of inputs and set those of the initial states."""
    for name, gradient in inputs.items():
        _stack(walk, gradient, name + GRAD + STEPS, walk.read(name, op).type.shape, op)
    gradients = op.outputs.get("initial_states" + GRAD, [])
    for (state, _), gradient in zip(_states(op), gradients, strict=False):
        if gradient != EMPTY:
            emit(walk, gradient, "assign", {"X": [walk.read(state + GRAD, op)]}, op)
