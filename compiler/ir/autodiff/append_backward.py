"""Reverse-mode autodiff: walk the ops of a block in reverse and append their gradient ops.

A gradient is called `x@GRAD`. Where several ops contribute to it, the partial gradients are called
`x@GRAD@RENAME@block0@k`, and a `sum` is inserted right before the first op that reads the total, or
at the end. An op is differentiated only if a gradient of one of its outputs exists: nothing is
written for ops that do not lead to the loss, or lead only to variables with `stop_gradient`. The
gradient of a block that an op owns is a block too, owned by the gradient op.
`compiler.ir.autodiff.reverse_walk` does the walk. Ops, names and order are those of Paddle's
`backward.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from compiler.errors import CompileError
from compiler.ir.autodiff.gradient_sums import PART
from compiler.ir.autodiff.reverse_walk import PASS, OnAppend, Tape
from compiler.ir.program import Block, OpDesc, OpRole

__all__ = [
    "PART",
    "PASS",
    "OnAppend",
    "append_backward",
    "append_gradients",
    "append_gradients_along",
    "note_parameters",
]


def append_backward(
    block: Block,
    loss: str,
    no_grad: Collection[str] = (),
    on_append: OnAppend | None = None,
) -> dict[str, str]:
    """Append the ops that compute the gradients of `loss`; return the gradients' names by variable.

    Variables with `stop_gradient`, those of `no_grad` and those that are not floating point get
    none. Raises CompileError if no op computes the loss or it does not have exactly one element.
    """
    writer = _writer(block, loss)
    _check_loss(block, loss, writer)
    tape = Tape(block, no_grad)
    for op in _seeds(block, loss, None, tape.initial_gradient(loss), OpRole.BACKWARD | OpRole.LOSS):
        tape.gradients.append(op)
    tape.walk(_ops_up_to(block))
    writer.attrs["op_role"] = int(OpRole.FORWARD | OpRole.LOSS)
    return tape.write(on_append)


def append_gradients(
    block: Block,
    targets: Mapping[str, str | None],
    inputs: Sequence[str],
    no_grad: Collection[str] = (),
) -> dict[str, str]:
    """Append the ops that compute gradients of `targets` with respect to `inputs`.

    `targets` maps each variable to the name of its initial gradient, or None for ones. Returns the
    names of gradients by variable; inputs that no target depends on are absent.
    """
    tape = Tape(block, no_grad, _dependents(block.ops, inputs))
    for target, gradient in targets.items():
        for op in _seeds(block, target, gradient, tape.initial_gradient(target)):
            tape.gradients.append(op)
    tape.walk(block.ops)
    return tape.write(None)


def append_gradients_along(
    block: Block,
    targets: Mapping[str, str | None],
    ops: Sequence[OpDesc],
    no_grad: Collection[str] = (),
    inputs: Sequence[str] | None = None,
) -> dict[str, str]:
    """Append the ops that compute gradients of `targets` through `ops`, some of those of the block.

    As `append_gradients`; without `inputs`, gradients of all variables that require one.
    """
    depending = None if inputs is None else _dependents(ops, inputs)
    tape = Tape(block, no_grad, depending)
    for target, gradient in targets.items():
        for op in _seeds(block, target, gradient, tape.initial_gradient(target)):
            tape.gradients.append(op)
    tape.walk(ops)
    return tape.write(None)


def note_parameters(block: Block, gradients: Iterable[tuple[str, str]]) -> None:
    """Write each (parameter, gradient) into `op_role_var` of the op that completes the gradient."""
    writers = {name: op for op in block.ops for name in op.writes()}
    for param, gradient in gradients:
        attrs = writers[gradient].attrs
        attrs["op_role_var"] = [param, gradient, *attrs.get("op_role_var", [])]
    block.owner.touch()


def _writer(block: Block, name: str) -> OpDesc:
    writer = next((op for op in reversed(block.ops) if name in op.writes()), None)
    if writer is None:
        raise CompileError(
            f"variable {name!r} is computed by no op of its block, so it has no gradient",
            hint="pass the variable that a layer returned",
        )
    return writer


def _ops_up_to(block: Block) -> list[OpDesc]:
    """Return the ops of the enclosing blocks, outermost first, then those of the block."""
    around = [] if block.parent is None else _ops_up_to(block.parent)
    return [*around, *block.ops]


def _check_loss(block: Block, name: str, writer: OpDesc) -> None:
    """Raise CompileError if the variable to minimise does not have exactly one element."""
    loss = block.lookup(name)
    if loss is None or loss.dims is None or any(size != 1 for size in loss.dims):
        shape = None if loss is None else loss.dims
        raise CompileError(
            f"the loss {name!r} has shape {shape}, expected (1,)",
            source=writer.source,
            hint="average it with fluid.layers.mean",
        )


def _seeds(
    block: Block,
    target: str,
    given: str | None,
    gradient: str,
    role: OpRole = OpRole.BACKWARD,
) -> list[OpDesc]:
    """Return ops that initialise a target's gradient: a copy of `given`, or ones."""
    var, source = block.lookup(target), _writer(block, target).source
    out = {"Out": [gradient]}
    attrs: dict[str, Any] = {"op_role": int(role)}
    if given is not None:
        return [OpDesc("assign", {"X": [given]}, out, attrs, source)]
    if var is None or var.dims is None or -1 in var.dims:
        zeros = OpDesc("fill_zeros_like", {"X": [target]}, out, attrs, source)
        return [zeros, OpDesc("scale", {"X": [gradient]}, out, {"bias": 1.0, **attrs}, source)]
    attrs |= {"shape": list(var.dims), "value": 1.0, "dtype": var.element.code}
    return [OpDesc("fill_constant", {}, out, {**attrs, "force_cpu": False}, source)]


def _dependents(ops: Sequence[OpDesc], inputs: Sequence[str]) -> set[str]:
    """Return `inputs` and every name whose value depends on one of them."""
    names = set(inputs)
    for op in ops:
        if names.intersection(op.reads()):
            names |= set(op.writes())
    return names
