"""Layout rules: how an op class computes on permuted operands.

A pass that keeps images in one layout queries each op for its permuted form. An elementwise op
stays the same; a convolution has an attribute for the layout; a reduction has its axes permuted. By
default an op requires the original layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from compiler.ir.program import GRAD
from compiler.ir.types import Shape, TensorType
from compiler.support.dataclass import dataclass

Types: TypeAlias = "Mapping[str, Sequence[TensorType]]"
"""The types of an op's inputs and outputs by slot."""

Order: TypeAlias = "tuple[int, ...]"
"""A permutation: axis i of the permuted value is axis `order[i]` of the original."""


@dataclass(frozen=True)
class Prepermuted:
    """Inputs that an op reads faster if they are permuted before: the order of each, by slot.

    `attrs` are the attributes of the op that reads them so.
    """

    orders: Mapping[str, Order] = field(default_factory=dict[str, Order])
    attrs: Mapping[str, object] = field(default_factory=dict[str, object])


NOTHING = Prepermuted()


@dataclass(frozen=True)
class PermutedOp:
    """The permuted form of an op: the operands in `slots` are permuted, `attrs` replace attributes.

    Operands in `views` are not permuted but reshaped. `ahead` are other inputs that the op prefers
    permuted if they are constant, or read often enough; `grad_ahead` those that its gradient op
    reads for the gradient of a slot.
    """

    slots: frozenset[str]
    attrs: Mapping[str, object] = field(default_factory=dict[str, object])
    views: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    ahead: Prepermuted = NOTHING
    grad_ahead: Mapping[str, Prepermuted] = field(default_factory=dict[str, Prepermuted])


class AlongAxis:
    """The layout rule of ops that concatenate or split X and Out along attribute `axis`."""

    attributes: dict[str, Any]

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Permute X, Out and the axis; None if the axis is a tensor."""
        axes = permuted_axes([self.attributes["axis"]], order)
        is_static = "AxisTensor" not in types
        return PermutedOp(frozenset({"X", "Out"}), {"axis": axes[0]}) if is_static else None


def permuted_gradient(forward: PermutedOp, types: Types) -> PermutedOp:
    """The permuted form of a gradient op: gradients are permuted like their values."""
    gradients = frozenset(slot + GRAD for slot in forward.slots)
    views = {**forward.views, **{slot + GRAD: shape for slot, shape in forward.views.items()}}
    ahead = (forward.grad_ahead[slot] for slot in forward.grad_ahead if types.get(slot + GRAD))
    slots = forward.slots | gradients
    return replace(forward, slots=slots, views=views, ahead=next(ahead, NOTHING))


def channels_last(rank: int) -> Order:
    """Return the permutation that moves axis 1 (channels) to the end.

    >>> channels_last(4), channels_last(5)
    ((0, 2, 3, 1), (0, 2, 3, 4, 1))
    """
    return (0, *range(2, rank), 1)


def back(order: Order) -> Order:
    """Return the inverse permutation.

    >>> back((0, 2, 3, 1))
    (0, 3, 1, 2)
    """
    return tuple(order.index(axis) for axis in range(len(order)))


def in_order(type: TensorType, order: Order) -> TensorType:
    """Return the permuted type."""
    return type.with_shape([type.shape[axis] for axis in order])


def permute_all_operands(types: Types, order: Order) -> PermutedOp | None:
    """Permute all operands; None unless each has the rank of `order` or is a scalar."""
    present = {slot: slot_types for slot, slot_types in types.items() if slot_types}
    whole = {
        s
        for s, slot_types in present.items()
        if all(tensor_type.rank == len(order) for tensor_type in slot_types)
    }
    single = {
        s
        for s, slot_types in present.items()
        if all(tensor_type.numel == 1 for tensor_type in slot_types)
    }
    return PermutedOp(frozenset(whole)) if whole | single == set(present) and whole else None


def permuted_axes(axes: Sequence[int], order: Order) -> list[int]:
    """Return the new positions of axes in a permutation; negative axes count from the end."""
    return [order.index(axis % len(order)) for axis in axes]
