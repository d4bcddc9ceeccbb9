"""Layout rules: how an op class computes on permuted operands.

A pass that keeps images in one layout queries each op for its permuted form. An elementwise op
stays the same; a convolution has an attribute for the layout; a reduction has its axes permuted. By
default an op requires the original layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from compiler.ir.opdef.memory_rules import Types
from compiler.ir.program import GRAD
from compiler.ir.types import Shape, TensorType

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


class LayoutRules:
    """The layout rules of an op class; the default requires the original layout.

    `prefers_channels_last` is True for ops that read images as matrix products: channels-last tiles
    are loaded in long contiguous runs.
    """

    prefers_channels_last: ClassVar[bool] = False

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Return the op on operands permuted by `order`, of equal rank; None if unsupported.

        `types` are the current types of its inputs and outputs by slot.
        """
        return None

    def gradient_type(self, slot: str, given: Any) -> Any:
        """Return the type of the gradient of an input, or a list of types: those of the input."""
        return given

    def reads_tiles(self) -> bool:
        """Return `prefers_channels_last`; a gradient op returns that of its forward op."""
        return self.prefers_channels_last


class ElementwiseLayout(LayoutRules):
    """The layout rule of elementwise ops: all operands are permuted alike."""

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Permute all operands; they must have the rank of `order` or be scalars."""
        return permute_all_operands(types, order)


class AlongAxis(LayoutRules):
    """The layout rule of ops that concatenate or split X and Out along attribute `axis`."""

    attributes: dict[str, Any]

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Permute X, Out and the axis; None if the axis is a tensor."""
        axes = permuted_axes([self.attributes["axis"]], order)
        is_static = "AxisTensor" not in types
        return PermutedOp(frozenset({"X", "Out"}), {"axis": axes[0]}) if is_static else None


class GradLayoutRules(LayoutRules):
    """The layout rule of gradient ops: a gradient is permuted like its value."""

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Apply the rule of the forward op to values and gradients."""
        forward_types = {slot.removesuffix(GRAD): slot_types for slot, slot_types in types.items()}
        permuted = self.layout_rules().permuted(forward_types, order)
        if permuted is None:
            return None
        gradients = frozenset(slot + GRAD for slot in permuted.slots)
        views = {**permuted.views, **{slot + GRAD: shape for slot, shape in permuted.views.items()}}
        slots = permuted.slots | gradients
        read = (permuted.grad_ahead[slot] for slot in permuted.grad_ahead if types.get(slot + GRAD))
        return replace(permuted, slots=slots, views=views, ahead=next(read, NOTHING))

    def reads_tiles(self) -> bool:
        """Return the preference of the forward op."""
        return self.layout_rules().reads_tiles()

    def layout_rules(self) -> LayoutRules:
        """Return the forward op."""
        raise NotImplementedError


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
