"""The gradient ops of an op, as its class defines them.

The gradient of an op that owns a block is another op with a block, and the inner gradient is built
first. The op class then defines how the op passes gradients into and out of it (`block_grad`),
which gradients exist in every iteration even without one outside (`arriving`), and which are
carried from one iteration to the next (`carried`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from compiler.ir.autodiff.double_grad import double_grad_ops
from compiler.ir.opdef import GradOp, find, has
from compiler.ir.opdef.type_inference import bind
from compiler.ir.program import EMPTY, GRAD, OpDesc
from compiler.support.dataclass import dataclass

NameOf: TypeAlias = Callable[[str], str]
"""A function from a variable to the name of its gradient."""


def gradient_ops(op: OpDesc, grad: NameOf) -> list[OpDesc]:
    """Return the ops that compute an op's gradient; none if it has none. `grad` names gradients."""
    definition = find(op.type)
    if definition.grad_class is not None:
        return [_gradient_op(op, definition.grad_class, grad)]
    if issubclass(definition, GradOp):
        return double_grad_ops(op, grad)
    bound = bind(op)
    if not has(bound, "grad_ops"):
        return []
    ops = cast("list[OpDesc]", cast(Any, bound).grad_ops(op, grad))
    for gradient_op in ops:
        gradient_op.source = op.source
    return ops


def _gradient_op(op: OpDesc, cls: type[GradOp], grad: NameOf) -> OpDesc:
    """Return `<op>_grad` with the slots its class declares and the attributes of the op."""
    operands = op.inputs | op.outputs

    def named(slots: Iterable[str]) -> dict[str, list[str]]:
        return {slot: _slot(slot, operands, grad) for slot in slots}

    inputs = [name for name, slot in cls.inputs().items() if not slot.companion]
    outputs = [name for name, slot in cls.outputs().items() if not slot.companion]
    return OpDesc(cls.kind, named(inputs), named(outputs), op.attrs, op.source)


def _slot(slot: str, known: Mapping[str, Sequence[str]], grad: NameOf) -> list[str]:
    """Return the names in a gradient op's slot: `X` as in the op, `X@GRAD` their gradients."""
    if not slot.endswith(GRAD):
        return list(known.get(slot, ()))
    names = known.get(slot.removesuffix(GRAD), ())
    return [name if name == EMPTY else grad(name) for name in names]


# ---- ops that own a block -----------------------------------------------------------------------


@dataclass(frozen=True)
class Inside:
    """The interface of a gradient block with the gradients outside.

    `asked` are the variables whose gradient it reads, `known` those that have one outside; `given`
    are those whose gradient it writes; `passed` those that the op may or may not overwrite, so that
    their gradient may pass through.
    """

    asked: Sequence[str]
    known: frozenset[str]
    given: frozenset[str]
    passed: Sequence[str]
    grad: NameOf

    def taken(self, names: Iterable[str]) -> list[str]:
        """Return the gradients of variables that are available and read, `EMPTY` for others."""
        taken = self.known.intersection(self.asked)
        return [self.grad(name) if name in taken else EMPTY for name in names]

    def left(self, names: Iterable[str], inside: Iterable[str] | None = None) -> list[str]:
        """Return the gradients of variables that the block writes, `EMPTY` for others.

        `inside` are the names of the variables in the block, if they differ.
        """
        names = list(names)
        pairs = zip(names, names if inside is None else inside, strict=True)
        inner_names = self.given.union(self.passed)
        return [self.grad(name) if inner in inner_names else EMPTY for name, inner in pairs]


class BlockOwner(Protocol):
    """An op that owns a differentiable block."""

    def arriving(self, op: OpDesc) -> list[str]:
        """List the variables with a gradient (or zeros) as input of every iteration."""
        ...

    def carried(self, op: OpDesc) -> list[str]:
        """List the variables whose gradient may be carried between gradient iterations."""
        ...

    def block_grad(self, op: OpDesc, inside: Inside) -> OpDesc:
        """Return the op that owns the gradient block; its block index is set later."""
        ...


def block_owner(op: OpDesc) -> BlockOwner | None:
    """Return the op as owner of a differentiable block, or None."""
    return cast(BlockOwner, bind(op)) if hasattr(find(op.type), "block_grad") else None
