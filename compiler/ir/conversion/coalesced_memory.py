"""Emulation of `coalesce_tensor`: names of a program share memory, vars of a graph do not.

A write to the fused tensor invalidates its parts, and a write to a part invalidates the fused
tensor. An invalid value is recomputed where it is read, or at the end of the step if it is
persistable or fetched: a part is sliced from the fused tensor, the fused tensor is assembled from
its parts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Protocol

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.program import OpDesc
from compiler.ir.types import Shape, TensorType
from compiler.support.dataclass import dataclass

ALIGNED = 4096
"""The alignment of each tensor in bytes, as on CPUs in the reference."""


def places_in(types: Sequence[TensorType]) -> list[tuple[int, int]]:
    """Return the first element and the number of elements of each tensor in the fused tensor."""
    places: list[tuple[int, int]] = []
    start = 0
    for type in types:
        size = known(type.shape)
        places.append((start, size))
        start += -(-size * type.dtype.itemsize // ALIGNED) * ALIGNED // type.dtype.itemsize
    return places


def known(shape: Shape) -> int:
    """Return the number of elements of a shape; ShapeError if it is not a positive constant."""
    size: Size = product(shape)
    if not isinstance(size, int) or size < 1:
        raise ShapeError(f"coalesce_tensor: an Input has {size} elements, expected a known number")
    return size


class BlockReads(Protocol):
    """The walk over a block, restricted to what is used here."""

    def add(self, op: OpDesc) -> None:
        """Add one op to the graph."""
        ...

    def is_state(self, name: str) -> bool:
        """Return whether a name is persistable."""
        ...


@dataclass(frozen=True)
class FusedTensor:
    """A fused tensor: its name, its parts with types and first elements, and the op."""

    name: str
    parts: dict[str, tuple[TensorType, int]]
    op: OpDesc


@dataclass
class CoalescedMemory:
    """The fused tensors of a block by the names of themselves and of their parts.

    `invalid` has the names whose value is invalid.
    """

    tensors: dict[str, FusedTensor] = field(default_factory=dict[str, FusedTensor])
    invalid: dict[str, None] = field(default_factory=dict[str, None])
    refreshing: bool = False

    def coalesced(self, op: OpDesc, types: Sequence[TensorType]) -> None:
        """Register the outputs of a `coalesce_tensor`; `types` are those of its inputs."""
        names = op.outputs.get("Output", ())
        if self.refreshing or not names:
            return
        pairs = zip(names, zip(types, places_in(types), strict=True), strict=False)
        parts = {name: (type, start) for name, (type, (start, _)) in pairs}
        fused = FusedTensor(op.outputs["FusedOutput"][0], parts, op)
        for name in (fused.name, *fused.parts):
            self.tensors[name] = fused
            self.invalid.pop(name, None)

    def written(self, op: OpDesc) -> None:
        """Record which names the writes of an added op invalidate."""
        if self.refreshing or not self.tensors or op.type == "coalesce_tensor":
            return
        for name in op.writes():
            self.invalid.pop(name, None)
            fused = self.tensors.get(name)
            if fused is not None:
                others = fused.parts if name == fused.name else [fused.name]
                self.invalid.update(dict.fromkeys(others))

    def refresh(self, walk: BlockReads, name: str) -> None:
        """Add the ops that recompute the value of a name if it is invalid."""
        if name not in self.invalid:
            return
        del self.invalid[name]
        fused = self.tensors[name]
        before, self.refreshing = self.refreshing, True
        for op in assemble_fused(fused) if name == fused.name else slice_part(fused, name):
            walk.add(op)
        self.refreshing = before

    def refresh_results(self, walk: BlockReads, fetched: Collection[str]) -> None:
        """Recompute all invalid values that are fetched or persistable."""
        for name in list(self.invalid):
            if name in fetched or walk.is_state(name):
                self.refresh(walk, name)


def assemble_fused(fused: FusedTensor) -> list[OpDesc]:
    """Return the op that assembles the fused tensor from its parts."""
    names = list(fused.op.outputs["Output"])
    attrs = {**fused.op.attrs, "copy_data": True, "set_constant": False}
    outputs = {"FusedOutput": [fused.name]}
    return [OpDesc("coalesce_tensor", {"Input": names}, outputs, attrs, fused.op.source)]


def slice_part(fused: FusedTensor, name: str) -> list[OpDesc]:
    """Return the ops that slice a part from the fused tensor."""
    type, start = fused.parts[name]
    flat, shape = f"{name}@PART", [size for size in type.shape if isinstance(size, int)]
    end = start + known(type.shape)
    cut = {"axes": [0], "starts": [start], "ends": [end]}
    source = fused.op.source
    return [
        OpDesc("slice", {"Input": [fused.name]}, {"Out": [flat]}, cut, source),
        OpDesc("reshape", {"X": [flat]}, {"Out": [name]}, {"shape": shape}, source),
    ]
