"""Double grad: the gradient of a gradient op, as ops; needed for gradient penalties.

A gradient op is linear in its incoming gradient. If the op itself is linear in its inputs, each or
several together, or piecewise linear, its double grad consists of the op and its gradient op again,
with gradients of gradients in place of values (`xx` below is the gradient of `x@GRAD`):

    y = f(a, b), linear in each:  yy = f(aa, b) + f(a, bb), and b@GRAD's share of aa likewise
    y = relu(x):                  yy = relu_grad(y, xx)

Other ops have a dedicated op, called `…_grad_grad` as in the reference, whose slots name its
inputs: DDX the gradient of `X@GRAD`, DOut `Out@GRAD`, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from compiler.ir.opdef import GradOp, OpDef, find, is_registered
from compiler.ir.program import EMPTY, GRAD, OpDesc

NameOf = Callable[[str], str]
"""A function from a variable to the name of its gradient."""

SECOND = "_grad"
"""The suffix of the name of a gradient op's own gradient op."""

NEW_SUFFIX = "New"
"""The suffix of a slot for the gradient of an input gradient: `DOutNew`."""


def double_grad_ops(op: OpDesc, grad: NameOf) -> list[OpDesc]:
    """Return the ops that compute the gradient of a gradient op; none if it is not supported."""
    cls = find(op.type)
    if not issubclass(cls, GradOp):
        return []
    if is_registered(op.type + SECOND):
        ops = [_dedicated_op(op, find(op.type + SECOND), grad)]
    elif cls.forward.is_piecewise_linear:
        ops = [_piecewise_linear_grad(op, grad)]
    elif cls.forward.linear_in:
        ops = [*_forward_terms(op, cls.forward, grad), *_backward_terms(op, cls.forward, grad)]
    else:
        return []
    for gradient_op in ops:
        gradient_op.source = op.source
    return ops


def has_gradient(op: OpDesc) -> bool:
    """Return False for a gradient op, or the dedicated gradient op of one, without a gradient."""
    if op.type.endswith(SECOND + SECOND):
        return find(op.type).grad_class is not None
    cls = find(op.type)
    if not issubclass(cls, GradOp) or is_registered(op.type + SECOND):
        return True
    return cls.forward.is_piecewise_linear or bool(cls.forward.linear_in)


def _piecewise_linear_grad(op: OpDesc, grad: NameOf) -> OpDesc:
    """Return the gradient op applied to the gradient of its output (piecewise linear ops)."""
    (operand,), (result,) = _gradient_slots(op.inputs), _gradient_slots(op.outputs)
    inputs = {**op.inputs, operand: _grads(op.outputs[result], grad)}
    return OpDesc(op.type, inputs, {result: _grads(op.inputs[operand], grad)}, op.attrs)


def _forward_terms(op: OpDesc, forward: type[OpDef], grad: NameOf) -> Iterable[OpDesc]:
    """Yield, for each group of linear inputs, the forward op on their gradients' gradients."""
    (operand,) = _gradient_slots(op.inputs)
    outputs = {operand.removesuffix(GRAD): _grads(op.inputs[operand], grad)}
    linear = {slot for group in forward.linear_in for slot in group}
    fixed = linear | {name for name, slot in forward.inputs().items() if slot.no_grad}
    for group in forward.linear_in:
        second = {slot: _grads(op.outputs.get(slot + GRAD, []), grad) for slot in group}
        if all(name != EMPTY for names in second.values() for name in names or [EMPTY]):
            rest = {slot: names for slot, names in op.inputs.items() if slot in fixed}
            yield _without_xshape(OpDesc(forward.kind, rest | second, outputs, op.attrs))


def _without_xshape(op: OpDesc) -> OpDesc:
    """Return the first version of the op if the second (`reshape2`) also has an output XShape."""
    if "XShape" not in find(op.type).outputs():
        return op
    earlier = find(op.type.removesuffix("2"))
    attrs = {name: value for name, value in op.attrs.items() if name in earlier.attrs}
    return OpDesc(earlier.kind, op.inputs, op.outputs, attrs)


def _backward_terms(op: OpDesc, forward: type[OpDef], grad: NameOf) -> Iterable[OpDesc]:
    """Yield, for each group of linear inputs, its contribution to the gradients of other inputs."""
    for group in forward.linear_in:
        second = {slot: _grads(op.outputs.get(slot + GRAD, []), grad) for slot in group}
        others = [slot for other in forward.linear_in if other != group for slot in other]
        outputs = {slot + GRAD: _grads(op.inputs[slot], grad) for slot in others}
        if others and all(name != EMPTY for names in second.values() for name in names or [EMPTY]):
            yield OpDesc(op.type, op.inputs | second, outputs, op.attrs)


def _dedicated_op(op: OpDesc, cls: type[OpDef], grad: NameOf) -> OpDesc:
    """Return the dedicated double-grad op, with slots filled by name."""
    inputs = {slot: _input_names(op, slot, grad) for slot in cls.inputs()}
    outputs = {slot: _output_names(op, slot, grad) for slot in cls.outputs()}
    return OpDesc(cls.kind, inputs, outputs, op.attrs)


def _input_names(op: OpDesc, slot: str, grad: NameOf) -> list[str]:
    if slot in op.inputs:
        return op.inputs[slot]
    if slot.startswith("DD"):
        names = _grads(op.outputs.get(slot[2:] + GRAD, []), grad)
        return [] if EMPTY in names else names
    slots = op.inputs | op.outputs
    return slots.get(slot[1:] + GRAD, [])


def _output_names(op: OpDesc, slot: str, grad: NameOf) -> list[str]:
    value = slot[2:] + GRAD if slot.startswith("DD") else slot[1:].removesuffix(NEW_SUFFIX)
    return _grads(op.inputs.get(value, []), grad)


def _gradient_slots(slots: Mapping[str, list[str]]) -> list[str]:
    """List the slots that hold gradients."""
    return [slot for slot in slots if slot.endswith(GRAD)]


def _grads(names: Iterable[str], grad: NameOf) -> list[str]:
    return [name if name == EMPTY else grad(name) for name in names]
