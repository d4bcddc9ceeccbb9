"""The sum of partial results: out[rows…, column] = Σ over parts of parts[part, rows…, column]."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.native.llvm_ir import Index, Type, Value, zero
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Call, Contraction
from compiler.codegen.native.products.index import lane_mask
from compiler.codegen.native.products.microkernel import (
    Ahead,
    Panel,
    Tile,
    TileBody,
)
from compiler.codegen.native.products.nest import contraction_kernel
from compiler.codegen.native.products.place import Pointers
from compiler.codegen.native.products.tiles import Tiling, assumed
from compiler.ir.dims import Size, product
from compiler.support.thresholds import threshold

BLOCK = threshold(
    "parts_block", 16_384, "elements", "a unit of a sum of partial results has so many", small=32
)


def sum_of_parts(
    machine: Machine, element: Type, label: str, count: Size, rows: Sequence[Axis], columns: Axis
) -> Call:
    """The kernel that adds `count` partial results; its slots are parts, out, open sizes.

    `rows` and `columns` move "parts" and "out", columns by 1; parts follow one another. They are
    added in order, whatever the units are.
    """
    size = product([*(axis.count for axis in rows), columns.count])
    spec = Contraction(
        f"sum_of_parts_{label}", element, (), rows, (Axis(count, {"parts": size}),), columns,
        {"parts": element, "out": element},
    )  # fmt: skip
    vectors = min(4, -(-assumed(columns.count) // machine.lanes(element)))
    block = max(1, BLOCK.value // assumed(columns.count))
    return contraction_kernel(spec, machine, Tiling(vectors, 1, 1, 1, "tiles", block), _Sum)


class _Sum(TileBody):
    """Emits the sums of a row of a panel."""

    def emit(
        self, pointers: Pointers, counts: Sequence[Index], panel: Panel, tile: Tile,
        ahead: Ahead | None,
    ) -> None:  # fmt: skip
        """Add the vectors of all parts, and store them."""
        f, nbytes = self.function, self.spec.element.nbytes
        mask = None if panel.lanes is None else lane_mask(f, self.lanes, panel.lanes)
        stride = self.indices.of(self.spec.sums[0].stride("parts"))

        def add(_: Index, held: list[Value]) -> list[Value]:
            part, *sums = held
            loaded = [
                self._load(part, vector, mask if vector == panel.vectors - 1 else None)
                for vector in range(panel.vectors)
            ]
            following = self.indices.move(part, 1, stride, nbytes)
            return [following, *(f.add(a, b) for a, b in zip(sums, loaded, strict=True))]

        start = [pointers["parts"], *([zero(self.type)] * panel.vectors)]
        _, *sums = self.indices.repeat(0, counts[0], add, start)
        for vector, value in enumerate(sums):
            self._store(
                pointers["out"], vector, value, mask if vector == panel.vectors - 1 else None
            )

    def _load(self, pointer: Value, vector: int, mask: Value | None) -> Value:
        f = self.function
        address = f.address(pointer, vector * self.lanes, self.spec.element.nbytes)
        if mask is None:
            return f.load(self.type, address)
        return f.masked_load(self.type, address, mask, zero(self.type))

    def _store(self, pointer: Value, vector: int, value: Value, mask: Value | None) -> None:
        f = self.function
        address = f.address(pointer, vector * self.lanes, self.spec.element.nbytes)
        if mask is None:
            f.store(value, address)
        else:
            f.masked_store(value, address, mask)
