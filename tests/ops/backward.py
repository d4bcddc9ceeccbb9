"""Gradients of one op: by its class, and by finite differences.

Both are gradients of sum(output * weight) over the outputs in `weights`. Slots with many tensors
are lists.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from compiler.ir.opdef import find, listed, type_of
from compiler.ir.program import GRAD, OpDesc
from tests.ops.samples import numbers

Values = Mapping[str, Any]
STEP = 1e-6
INTERMEDIATE = ("IntermediateOut",)
"""Outputs that no gradient comes in by, of ops whose gradient is other ops."""


def each(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to the value of a slot: to each of a list."""
    return [function(item) for item in value] if isinstance(value, list) else function(value)


def types_of(values: Values) -> dict[str, Any]:
    """Return the types of arrays by slot; an empty slot has none."""
    return {s: each(value, type_of) for s, value in values.items() if value is not None}


def widened(values: Values) -> dict[str, Any]:
    """Return copies by slot, floats in double precision."""
    return {slot: each(value, widen) for slot, value in values.items()}


def widen(array: Any) -> Any:
    """Return a copy, in double precision if it is one of floats."""
    return array.astype(np.float64 if array.dtype.kind == "f" else array.dtype)


def weights_for(kind: str, outputs: Values) -> dict[str, Any]:
    """Return a weight for each element of the outputs whose gradient the op's gradient reads."""
    read = gradient_inputs(kind)
    chosen = {s for s in outputs if (s not in INTERMEDIATE if read is None else s + GRAD in read)}
    wanted = {s: value for s, value in outputs.items() if s in chosen}
    inputs = {s: value for s, value in wanted.items() if not find(kind).slots[s].companion}
    return {s: each(v, weight_of) for s, v in inputs.items()}


def weight_of(array: Any) -> Any:
    """Return a weight for each element of an array."""
    return numbers(*array.shape, seed=9).astype(array.dtype)


def gradient_inputs(kind: str) -> Any:
    """Return the input slots of an op's gradient op; None where its gradient is other ops."""
    result = find(kind).grad_class
    return None if result is None else result.inputs()


def gradients(kind: str, attrs: Values, inputs: Values, weights: Values) -> dict[str, Any]:
    """The gradients by input slot, computed by the op."""
    if gradient_inputs(kind) is None:
        return by_ops(kind, attrs, inputs, weights)
    outputs = find(kind)(attrs).evaluate(inputs)
    result = gradient_op(kind, attrs, {**inputs, **outputs}, weights)[1]
    return {slot.removesuffix(GRAD): value for slot, value in result.items()}


def gradient_op(
    kind: str, attrs: Values, values: Values, weights: Values
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the types that an op's gradient op infers, and the arrays it computes.

    `values` has the op's inputs and outputs; what is not given there has no gradient.
    """
    cls = find(kind).grad_class
    assert cls is not None
    known = {**values, **{slot + GRAD: weight for slot, weight in weights.items()}}
    inputs = {slot: known.get(slot) for slot in cls.inputs()}
    types, actual = cls(attrs).infer_types(types_of(inputs)), cls(attrs).evaluate(inputs)
    wanted = [slot for slot in actual if slot.removesuffix(GRAD) in values]
    return {slot: types[slot] for slot in wanted}, {slot: actual[slot] for slot in wanted}


def by_ops(kind: str, attrs: Values, inputs: Values, weights: Values) -> dict[str, Any]:
    """The gradients by input slot, computed by the ops that `grad_ops` returns."""
    names = {slot: as_list(slot, value) for slot, value in inputs.items()}
    outputs = find(kind)(attrs).evaluate(inputs)
    created = {slot: as_list(slot, value) for slot, value in outputs.items()}
    values = by_name(names, inputs) | by_name(created, outputs)
    values |= {name + GRAD: weight for name, weight in by_name(created, weights).items()}
    op = OpDesc(kind, names, created, attrs)
    definition: Any = find(kind)(attrs)
    lods = {slot: value for slot, value in inputs.items() if slot.endswith("_lod")}
    for step in definition.grad_ops(op, lambda name: name + GRAD):
        slots = find(step.type).slots
        arguments = {
            s: slots[s].hold([values[n] for n in found]) for s, found in step.inputs.items()
        }
        results = find(step.type)(step.attrs).evaluate({**arguments, **lods})
        values |= by_name(step.outputs, results)
    actual = {slot: [values.get(name + GRAD) for name in names[slot]] for slot in inputs}
    return {s: v if isinstance(inputs[s], list) else v[0] for s, v in actual.items()}


def by_name(names: Mapping[str, list[str]], held: Values) -> dict[str, Any]:
    """Return what slots hold by the names in them."""
    pairs = ((names[slot], listed(value)) for slot, value in held.items() if slot in names)
    return {name: value for found, vs in pairs for name, value in zip(found, vs, strict=True)}


def as_list(slot: str, value: Any) -> list[str]:
    """Return a name for each tensor in a slot."""
    return [f"{slot}.{i}" for i in range(len(value))] if isinstance(value, list) else [slot]


def differences(kind: str, attrs: Values, inputs: Values, weights: Values, slot: str) -> Any:
    """Return the gradient of one input slot by central differences, in double precision."""
    wide = widened(inputs)

    def loss() -> float:
        outputs = find(kind)(attrs).evaluate(wide)
        pairs = ((outputs[s], weight) for s, weight in weights.items())
        products = (p for a, b in pairs for p in zip(listed(a), listed(b), strict=True))
        return sum(float((output * weight).sum()) for output, weight in products)

    return each(wide[slot], lambda array: slope(loss, array))


def slope(loss: Callable[[], float], array: Any) -> Any:
    """Return the derivative of a number by each element of an array that it depends on."""
    result = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        value = array[place]
        array[place] = value + STEP
        above = loss()
        array[place] = value - STEP
        result[place] = (above - loss()) / (2 * STEP)
        array[place] = value
    return result
