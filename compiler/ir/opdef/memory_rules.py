"""What an op says of memory: which values may share it, and what may be made a second time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

from compiler.ir.opdef.slots import Again, Share, Slot
from compiler.ir.program import GRAD
from compiler.ir.types import TensorType

Types: TypeAlias = "Mapping[str, Sequence[TensorType]]"
"""The types of what stands in the slots of an op, inputs and outputs."""


class MemoryRules:
    """What an op class may say for the planning of memory; what it does not say holds for none.

    `is_cheap` is True for what takes little time beside a matrix product, so that it may be done
    twice. `in_place` has, for outputs, inputs of as many bytes that they may be written over,
    besides those that `writes(inplace=…)` names; `in_place_grad` the same for the gradient op,
    `X` standing for the gradient of X among the outputs. `gaps` are the slots whose values may lie
    with gaps between what the first axis counts, and the gradients of those slots.
    """

    slots: ClassVar[dict[str, Slot]]
    is_cheap: ClassVar[bool] = False
    in_place: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    in_place_grad: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    gaps: ClassVar[frozenset[str]] = frozenset()

    def again(self) -> Again | None:
        """How to make outputs a second time, the same to the bit, where that is another op."""
        return None

    def shares(self, types: Types) -> list[Share]:
        """Inputs and outputs that may be one memory, or part of one, since no element changes."""
        return []

    def is_sharing(self) -> bool:
        """True where the class says anything of that at all: a quick look before a long one."""
        return type(self).shares is not MemoryRules.shares

    def shares_grad(self, types: Types) -> list[Share]:
        """The same of the gradient op."""
        return []

    def written_over(self, slot: str) -> tuple[str, ...]:
        """The inputs that an output may be written over, each by itself, once it is read."""
        return tuple(filter(None, (self.slots[slot].inplace, *self.in_place.get(slot, ()))))

    def may_have_gaps(self, slot: str, axes: int) -> bool:
        """True where what stands in a slot may have gaps between its rows.

        The first `axes` axes count the rows, the others make one.
        """
        return slot in self.gaps and axes == 1


class GradMemoryRules(MemoryRules):
    """What a gradient op says: what the class of its forward op says of it."""

    def forward_rules(self) -> MemoryRules:
        """The forward op."""
        raise NotImplementedError

    def is_sharing(self) -> bool:
        """As the class of the forward op says it."""
        return type(self.forward_rules()).shares_grad is not MemoryRules.shares_grad

    def shares(self, types: Types) -> list[Share]:
        """What the forward op says of its gradient."""
        return self.forward_rules().shares_grad(types)

    def written_over(self, slot: str) -> tuple[str, ...]:
        """What the forward op says of the gradient of this slot."""
        return self.forward_rules().in_place_grad.get(slot.removesuffix(GRAD), ())

    def may_have_gaps(self, slot: str, axes: int) -> bool:
        """As the forward op, whose slots these or their gradients are."""
        return self.forward_rules().may_have_gaps(slot.removesuffix(GRAD), axes)
