"""Which bytes an op writes: its outputs except what is already in place as a view.

Generic over the ops and vars of a graph and those of an execution plan, which are both verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from compiler.ir.opdef import OpDef
from compiler.ir.opdef.slots import Share
from compiler.ir.region import Region, subregion
from compiler.ir.types import TensorType


class Placed(Protocol):
    """A value with a type and possibly memory: a var of a graph, a value of a plan."""

    @property
    def type(self) -> TensorType:
        """The element type and shape."""
        ...

    @property
    def memory(self) -> int | None:
        """The number of its slot or buffer, or None."""
        ...

    @property
    def region(self) -> Region:
        """The bytes it occupies there."""
        ...


P = TypeVar("P", bound=Placed)
P_co = TypeVar("P_co", bound=Placed, covariant=True)


class Sharing(Protocol[P_co]):
    """An op, restricted to what aliasing needs."""

    @property
    def defn(self) -> OpDef:
        """The op definition."""
        ...

    @property
    def inputs(self) -> Mapping[str, Sequence[P_co]]:
        """The inputs, by slot."""
        ...

    @property
    def outputs(self) -> Mapping[str, Sequence[P_co]]:
        """The outputs, by slot."""
        ...


def shared(op: Sharing[P]) -> list[tuple[P, P, Share]]:
    """List the pairs (whole, part) of operands that may alias, with the declared share."""
    if not op.defn.declares_shares():
        return []
    sides = {**op.inputs, **op.outputs}
    types = {slot: [var.type for var in operands] for slot, operands in sides.items()}
    pairs: list[tuple[P, P, Share]] = []
    for share in op.defn.shares(types):
        whole, part = (
            sides[slot][index] if slot in sides and index < len(sides[slot]) else None
            for slot, index in (share.whole, share.part)
        )
        if whole is not None and part is not None and whole is not part:
            pairs.append((whole, part, share))
    return pairs


def is_view(whole: Placed, part: Placed, share: Share) -> bool:
    """Return whether a part is a view of the whole: it occupies the very bytes it has there."""
    if whole.memory is None or whole.memory != part.memory:
        return False
    return part.region == subregion(whole.region, whole.type, part.type, share)


class Aliases(Generic[P]):
    """The operands of an op that may alias, found once for all of its outputs."""

    def __init__(self, op: Sharing[P]) -> None:
        self._outputs = {id(value) for values in op.outputs.values() for value in values}
        self._pairs: dict[int, list[tuple[P, P, Share]]] = {}
        for pair in shared(op):
            for value in pair[:2]:
                self._pairs.setdefault(id(value), []).append(pair)

    def written(self, made: P) -> list[Region]:
        """List the regions of its slot that the op writes to produce `made`."""
        parts: list[Region] = []
        pairs = self._pairs.get(id(made), [])
        if any(part is made and is_view(whole, part, share) for whole, part, share in pairs):
            return []
        joined = [p for p in pairs if p[0] is made and id(p[1]) not in self._outputs]
        for whole, part, share in joined:
            if is_view(whole, part, share):
                continue
            region = subregion(made.region, whole.type, part.type, share)
            if region is None:
                return [made.region]
            parts.append(region)
        return parts if joined else [made.region]

    def linked(self, made: P) -> list[P]:
        """List the operands that alias an output: its views, and values it is a view of."""
        pairs = [pair for pair in self._pairs.get(id(made), []) if is_view(*pair)]
        return [value for pair in pairs for value in pair[:2]]
