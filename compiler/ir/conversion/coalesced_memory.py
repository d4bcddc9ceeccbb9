"""Names of a program that share memory by `coalesce_tensor`, in a graph, whose values do not.

A write to the whole makes what its parts hold out of date, and a write to a part the whole. What is
out of date is made anew where it is read, or where the run ends and it outlives the run or is
fetched: a part is cut out of the whole, and the whole is put together of its parts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.program import OpDesc
from compiler.ir.types import Shape, TensorType

ALIGNED = 4096
"""Bytes that the place of each tensor is a multiple of, as on CPUs in the reference."""


def places_in(types: Sequence[TensorType]) -> list[tuple[int, int]]:
    """Where each tensor begins among the elements of the whole, and how many it has."""
    found: list[tuple[int, int]] = []
    start = 0
    for type in types:
        size = known(type.shape)
        found.append((start, size))
        start += -(-size * type.dtype.itemsize // ALIGNED) * ALIGNED // type.dtype.itemsize
    return found


def known(shape: Shape) -> int:
    """How many elements a shape has; ShapeError where that is not known."""
    size: Size = product(shape)
    if not isinstance(size, int) or size < 1:
        raise ShapeError(f"coalesce_tensor: an Input has {size} elements, expected a known number")
    return size


class Walk(Protocol):
    """The walk over a block, as far as it is asked here."""

    def add(self, op: OpDesc) -> None:
        """Add one op to the graph."""
        ...

    def is_state(self, name: str) -> bool:
        """True for what outlives a run."""
        ...


@dataclass(frozen=True)
class Whole:
    """The name of the whole, its parts with their types and first elements, and the op."""

    name: str
    parts: dict[str, tuple[TensorType, int]]
    op: OpDesc


@dataclass
class SharedMemory:
    """The wholes of one block by the names of themselves and of their parts; `old` holds names
    whose value is out of date.
    """

    wholes: dict[str, Whole] = field(default_factory=dict[str, Whole])
    old: dict[str, None] = field(default_factory=dict[str, None])
    renewing: bool = False

    def coalesced(self, op: OpDesc, types: Sequence[TensorType]) -> None:
        """From here on the outputs of a `coalesce_tensor` share memory; `types` are its inputs'."""
        names = op.outputs.get("Output", ())
        if self.renewing or not names:
            return
        pairs = zip(names, zip(types, places_in(types), strict=True), strict=False)
        parts = {name: (type, start) for name, (type, (start, _)) in pairs}
        whole = Whole(op.outputs["FusedOutput"][0], parts, op)
        for name in (whole.name, *whole.parts):
            self.wholes[name] = whole
            self.old.pop(name, None)

    def written(self, op: OpDesc) -> None:
        """Note what an op that was added leaves out of date."""
        if self.renewing or not self.wholes or op.type == "coalesce_tensor":
            return
        for name in op.writes():
            self.old.pop(name, None)
            whole = self.wholes.get(name)
            if whole is not None:
                others = whole.parts if name == whole.name else [whole.name]
                self.old.update(dict.fromkeys(others))

    def renew(self, walk: Walk, name: str) -> None:
        """Add the ops that make a name hold what it should, where it does not."""
        if name not in self.old:
            return
        del self.old[name]
        whole = self.wholes[name]
        before, self.renewing = self.renewing, True
        for op in put_together(whole) if name == whole.name else cut_out(whole, name):
            walk.add(op)
        self.renewing = before

    def renew_results(self, walk: Walk, fetched: Collection[str]) -> None:
        """The same for all that is fetched or outlives the run."""
        for name in list(self.old):
            if name in fetched or walk.is_state(name):
                self.renew(walk, name)


def put_together(whole: Whole) -> list[OpDesc]:
    """The op that makes the whole of its parts."""
    names = list(whole.op.outputs["Output"])
    attrs = {**whole.op.attrs, "copy_data": True, "set_constant": False}
    outputs = {"FusedOutput": [whole.name]}
    return [OpDesc("coalesce_tensor", {"Input": names}, outputs, attrs, whole.op.source)]


def cut_out(whole: Whole, name: str) -> list[OpDesc]:
    """The ops that make a part of the whole."""
    type, start = whole.parts[name]
    flat, shape = f"{name}@PART", [size for size in type.shape if isinstance(size, int)]
    end = start + known(type.shape)
    cut = {"axes": [0], "starts": [start], "ends": [end]}
    source = whole.op.source
    return [
        OpDesc("slice", {"Input": [whole.name]}, {"Out": [flat]}, cut, source),
        OpDesc("reshape", {"X": [flat]}, {"Out": [name]}, {"shape": shape}, source),
    ]
