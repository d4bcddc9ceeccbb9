"""An op over values whose axes stand in another order: what an op class says of itself.

A pass that keeps images in one layout asks each op what it would be there. An op that goes element
by element is the same op; a convolution has an attribute for it; a sum over axes finds them at
other places. What says nothing keeps its axes as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from compiler.ir.opdef.memory_rules import Types
from compiler.ir.program import GRAD
from compiler.ir.types import Shape, TensorType

Order: TypeAlias = "tuple[int, ...]"
"""Axes in another order: axis i of the turned value is axis `order[i]` of the value."""


@dataclass(frozen=True)
class PermutedOp:
    """An op as it is over turned values: `slots` hold those, all others stay; `attrs` are new.

    What stands in `views` stays too, but is seen in another shape. `ahead` has inputs that are
    better turned as well where they are constant, in an order of their own, and `ahead_attrs` the
    attributes that say so.
    """

    slots: frozenset[str]
    attrs: Mapping[str, object] = field(default_factory=dict[str, object])
    views: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    ahead: Mapping[str, Order] = field(default_factory=dict[str, Order])
    ahead_attrs: Mapping[str, object] = field(default_factory=dict[str, object])


class LayoutRules:
    """What an op class says of layouts; what says nothing keeps its axes as they are.

    `prefers_channels_last` is True for what reads images as products of matrices: where channels
    lie together a tile is read in long runs.
    """

    prefers_channels_last: ClassVar[bool] = False

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """The op over values of as many axes as `order` has, in that order; None if there is none.

        `types` are those of its slots as they are now, inputs and outputs.
        """
        return None

    def reads_tiles(self) -> bool:
        """What `prefers_channels_last` says; a gradient op says what its forward op does."""
        return self.prefers_channels_last


class ElementwiseLayout(LayoutRules):
    """What goes element by element is the same op, over operands with the same axes."""

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """The op over values that all have these axes, or are one number."""
        return permute_all_operands(types, order)


class AlongAxis(LayoutRules):
    """What joins or splits along the axis that an attribute says: X and Out turn with it."""

    attributes: dict[str, Any]

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """The axis where the order has it, unless a tensor says which it is."""
        axes = permuted_axes([self.attributes["axis"]], order)
        known = "AxisTensor" not in types
        return PermutedOp(frozenset({"X", "Out"}), {"axis": axes[0]}) if known else None


class GradLayoutRules(LayoutRules):
    """What a gradient op says: a value and its gradient lie alike."""

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """As the forward op says it."""
        known = {slot.removesuffix(GRAD): given for slot, given in types.items()}
        found = self.layout_rules().permuted(known, order)
        if found is None:
            return None
        gradients = frozenset(slot + GRAD for slot in found.slots)
        views = {**found.views, **{slot + GRAD: shape for slot, shape in found.views.items()}}
        slots = found.slots | gradients
        return replace(found, slots=slots, views=views, ahead={}, ahead_attrs={})

    def reads_tiles(self) -> bool:
        """As the forward op."""
        return self.layout_rules().reads_tiles()

    def layout_rules(self) -> LayoutRules:
        """The forward op."""
        raise NotImplementedError


def channels_last(rank: int) -> Order:
    """The order that brings the axis behind the batch to the end.

    >>> channels_last(4), channels_last(5)
    ((0, 2, 3, 1), (0, 2, 3, 4, 1))
    """
    return (0, *range(2, rank), 1)


def back(order: Order) -> Order:
    """The order that undoes another.

    >>> back((0, 2, 3, 1))
    (0, 3, 1, 2)
    """
    return tuple(order.index(axis) for axis in range(len(order)))


def in_order(type: TensorType, order: Order) -> TensorType:
    """The type of a turned value."""
    return type.with_shape([type.shape[axis] for axis in order])


def permute_all_operands(types: Types, order: Order) -> PermutedOp | None:
    """What goes element by element, over values that all have these axes or are one number."""
    given = {slot: held for slot, held in types.items() if held}
    whole = {s for s, held in given.items() if all(each.rank == len(order) for each in held)}
    single = {s for s, held in given.items() if all(each.numel == 1 for each in held)}
    return PermutedOp(frozenset(whole)) if whole | single == set(given) and whole else None


def permuted_axes(axes: Sequence[int], order: Order) -> list[int]:
    """Where axes stand in an order; negative ones are counted from the end."""
    return [order.index(axis % len(order)) for axis in axes]
