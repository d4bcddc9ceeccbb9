"""Memory rules of an op class: which values may alias, and what can be rematerialised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

from compiler.ir.opdef.slots import RecomputeRule, Share, Slot
from compiler.ir.program import GRAD
from compiler.ir.types import TensorType

Types: TypeAlias = "Mapping[str, Sequence[TensorType]]"
"""The types of an op's inputs and outputs by slot."""


class MemoryRules:
    """What an op class may declare for memory planning; by default nothing may alias.

    `is_cheap` is True for ops that are cheap compared with a matrix product, so that they may be
    recomputed. `in_place` maps outputs to inputs of equal size in bytes that they may overwrite, in
    addition to those declared by `writes(inplace=…)`; `in_place_grad` does so for the gradient op,
    where output `X` means the gradient of X. `gaps` are the slots whose values, and gradients, may
    be strided along the first axis.
    """

    slots: ClassVar[dict[str, Slot]]
    is_cheap: ClassVar[bool] = False
    in_place: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    in_place_grad: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    gaps: ClassVar[frozenset[str]] = frozenset()

    def again(self) -> RecomputeRule | None:
        """Return another op that recomputes outputs bit-identically, or None."""
        return None

    def shares(self, types: Types) -> list[Share]:
        """List the inputs and outputs that may alias, since elements are only moved or viewed."""
        return []

    def declares_shares(self) -> bool:
        """Return whether the class overrides `shares`: a cheap test before calling it."""
        return type(self).shares is not MemoryRules.shares

    def shares_grad(self, types: Types) -> list[Share]:
        """List the operands of the gradient op that may alias."""
        return []

    def overwritable_inputs(self, slot: str) -> tuple[str, ...]:
        """Return the inputs, any one of which an output may overwrite."""
        return tuple(filter(None, (self.slots[slot].inplace, *self.in_place.get(slot, ()))))

    def supports_strided_rows(self, slot: str, axes: int) -> bool:
        """Return whether the value in a slot may have strided rows.

        The first `axes` axes index the rows.
        """
        return slot in self.gaps and axes == 1


class GradMemoryRules(MemoryRules):
    """The memory rules of a gradient op, declared by the class of its forward op."""

    def forward_rules(self) -> MemoryRules:
        """Return the forward op."""
        raise NotImplementedError

    def declares_shares(self) -> bool:
        """Return whether the class of the forward op overrides `shares_grad`."""
        return type(self.forward_rules()).shares_grad is not MemoryRules.shares_grad

    def shares(self, types: Types) -> list[Share]:
        """List the aliases that the forward op declares for its gradient."""
        return self.forward_rules().shares_grad(types)

    def overwritable_inputs(self, slot: str) -> tuple[str, ...]:
        """Return the inputs that the forward op allows this gradient to overwrite."""
        return self.forward_rules().in_place_grad.get(slot.removesuffix(GRAD), ())

    def supports_strided_rows(self, slot: str, axes: int) -> bool:
        """Return whether the forward op supports strided rows in this slot."""
        return self.forward_rules().supports_strided_rows(slot.removesuffix(GRAD), axes)
