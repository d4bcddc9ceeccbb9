"""What the gradient of an op is, as ops: asked of the op's class.

An op that owns a block is asked otherwise than others. The gradient of its block is a block too,
which is made first; the class then says how the op of that block takes gradients in and gives them
out (`block_grad`), which arrive in every run of it though nobody outside has them (`arriving`), and
which one run leaves for the next (`carried`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from compiler.ir.autodiff.double_grad import second_gradient_ops
from compiler.ir.opdef import GradOp, find, has
from compiler.ir.opdef.type_inference import bind
from compiler.ir.program import EMPTY, GRAD, OpDesc

NameOf: TypeAlias = Callable[[str], str]
"""From a variable to the name of its gradient."""


def gradient_ops(op: OpDesc, grad: NameOf) -> list[OpDesc]:
    """The ops that compute an op's gradient; none where it has none. `grad` names gradients."""
    definition = find(op.type)
    if definition.grad_class is not None:
        return [_gradient_op(op, definition.grad_class, grad)]
    if issubclass(definition, GradOp):
        return second_gradient_ops(op, grad)
    bound = bind(op)
    if not has(bound, "grad_ops"):
        return []
    made = cast("list[OpDesc]", cast(Any, bound).grad_ops(op, grad))
    for each in made:
        each.source = op.source
    return made


def _gradient_op(op: OpDesc, cls: type[GradOp], grad: NameOf) -> OpDesc:
    """`<op>_grad` with the slots its class declares and the attributes of the op."""
    known = op.inputs | op.outputs

    def named(slots: Iterable[str]) -> dict[str, list[str]]:
        return {slot: _slot(slot, known, grad) for slot in slots}

    inputs = [name for name, slot in cls.inputs().items() if not slot.companion]
    outputs = [name for name, slot in cls.outputs().items() if not slot.companion]
    return OpDesc(cls.kind, named(inputs), named(outputs), op.attrs, op.source)


def _slot(slot: str, known: Mapping[str, Sequence[str]], grad: NameOf) -> list[str]:
    """What stands in a gradient op's slot: `X` holds what the op's does, `X@GRAD` its gradients."""
    if not slot.endswith(GRAD):
        return list(known.get(slot, ()))
    names = known.get(slot.removesuffix(GRAD), ())
    return [name if name == EMPTY else grad(name) for name in names]


# ---- ops that own a block -----------------------------------------------------------------------


@dataclass(frozen=True)
class Inside:
    """What the gradient of a block asks of the gradients around it, and what it gives to them.

    `asked` are the variables whose gradient it takes in, `known` those that have one outside;
    `given` are those whose gradient it leaves; `passed` those that the op may write over or not, so
    that their gradient may go through.
    """

    asked: Sequence[str]
    known: frozenset[str]
    given: frozenset[str]
    passed: Sequence[str]
    grad: NameOf

    def taken(self, names: Iterable[str]) -> list[str]:
        """Gradients of variables where there are such and they are asked for, else `EMPTY`."""
        taken = self.known.intersection(self.asked)
        return [self.grad(name) if name in taken else EMPTY for name in names]

    def left(self, names: Iterable[str], inside: Iterable[str] | None = None) -> list[str]:
        """Gradients of variables where the block leaves them, `EMPTY` in the place of others.

        `inside` are the names the variables have in the block, if they are others.
        """
        names = list(names)
        pairs = zip(names, names if inside is None else inside, strict=True)
        known = self.given.union(self.passed)
        return [self.grad(name) if inner in known else EMPTY for name, inner in pairs]


class OwnsBlock(Protocol):
    """An op that owns a block which has a gradient."""

    def arriving(self, op: OpDesc) -> list[str]:
        """Variables whose gradient every run of the gradient block finds, if only as zeros."""
        ...

    def carried(self, op: OpDesc) -> list[str]:
        """Variables whose gradient one run of the gradient block may leave for the next one."""
        ...

    def block_grad(self, op: OpDesc, inside: Inside) -> OpDesc:
        """The op that owns the gradient block; which block that is will be said later."""
        ...


def block_owner(op: OpDesc) -> OwnsBlock | None:
    """What an op says of the gradient of its block; None where it owns none that has one."""
    return cast(OwnsBlock, bind(op)) if hasattr(find(op.type), "block_grad") else None
