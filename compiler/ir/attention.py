"""How attention reads its operands and writes its result, for the op and every target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from compiler.ir.types import DType, Shape
from compiler.support.dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True)
class AttentionLayout:
    """The orders in which the axes of operands are [stack…, rows, columns].

    Axis i of a matrix stack is axis `q[i]` of Q, and so on: Q has queries and their width, K and V
    keys and theirs. Axis i of Out is axis `out[i]` of the result [stack…, queries, columns of V].
    An empty order is that of the operand itself.
    """

    q: tuple[int, ...] = ()
    k: tuple[int, ...] = ()
    v: tuple[int, ...] = ()
    out: tuple[int, ...] = ()

    def result(self, Q: Shape, K: Shape, V: Shape) -> Shape:
        """Return the shape of Out for operands of these shapes."""
        q, v = ordered(Q, self.q), ordered(V, self.v)
        return ordered((*q[:-1], v[-1]), self.out)

    @property
    def from_out(self) -> tuple[int, ...]:
        """The order in which the axes of Out are those of the result."""
        return tuple(sorted(range(len(self.out)), key=self.out.__getitem__))


@dataclass(frozen=True)
class AttentionForm:
    """What attention computes: factor * dropout(softmax(scale * q @ kᵀ + mask)) @ v.

    With `is_causal` a query has no weight for the keys after it. Weights are dropped with the
    probability `dropout`, by the RNG key at index `place` of a tensor of keys and the index of each
    score in [stack…, queries, keys]; those that remain are not scaled.
    """

    layout: AttentionLayout
    scale: float = 1.0
    factor: float = 1.0
    is_causal: bool = False
    dropout: float = 0.0
    place: int = 0


@dataclass(frozen=True)
class AttentionSupport:
    """The kernels of attention that a target has.

    `types` are the element types of those that store no scores, `gradient_types` of their
    gradients, which read statistics of rows if `reads_statistics`. `skips_later_keys` says that
    causal attention is faster than one with a mask.
    """

    types: frozenset[DType] = frozenset()
    gradient_types: frozenset[DType] = frozenset()
    reads_statistics: bool = False
    skips_later_keys: bool = False


def ordered(sizes: Sequence[T], order: Sequence[int]) -> tuple[T, ...]:
    """Return sizes, strides or indices in an order; an empty one is their own.

    >>> ordered((2, 7, 3, 5), (0, 2, 1, 3)), ordered((2, 7), ())
    ((2, 3, 7, 5), (2, 7))
    """
    return tuple(sizes[axis] for axis in order) if order else tuple(sizes)
