"""Which element of a matrix each register of each lane holds: mma.sync and ldmatrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.tools.ptx.floats import FORMATS, Format

Place = tuple[int, int]
"""A row and a column."""


@dataclass(frozen=True)
class Shape:
    """An `mma.sync.aligned.m16n8k…` with f32 accumulators."""

    depth: int
    kind: str

    @property
    def name(self) -> str:
        return f"mma.sync.aligned.m16n8k{self.depth}.row.col.f32.{self.kind}.{self.kind}.f32"

    @property
    def format(self) -> Format:
        return FORMATS[self.kind]

    @property
    def packed(self) -> int:
        """Elements in a register."""
        return 1 if self.kind == "tf32" else 2

    def a(self, lane: int) -> list[Place]:
        """Places of A's elements, registers in order and low halves first."""
        group, inner = divmod(lane, 4)
        steps = self._steps(inner)
        return [(group + 8 * low, column) for first in steps for low in (0, 1) for column in first]

    def b(self, lane: int) -> list[Place]:
        group, inner = divmod(lane, 4)
        return [(row, group) for first in self._steps(inner) for row in first]

    def c(self, lane: int) -> list[Place]:
        group, inner = divmod(lane, 4)
        return [(group + 8 * low, 2 * inner + right) for low in (0, 1) for right in (0, 1)]

    def _steps(self, inner: int) -> list[list[int]]:
        """For each part of the depth that a register spans, the places in it."""
        if self.packed == 1:
            return [[inner + first] for first in range(0, self.depth, 4)]
        return [[first + 2 * inner, first + 2 * inner + 1] for first in range(0, self.depth, 8)]


SHAPES = [
    Shape(8, "tf32"),
    Shape(4, "tf32"),
    *(Shape(depth, kind) for depth in (8, 16) for kind in ("f16", "bf16")),
]


def packed(values: Sequence[int], count: int) -> list[int]:
    """Registers of elements: one each, or two with the first in the low half."""
    if count == 1:
        return list(values)
    return [low | (high << 16) for low, high in zip(values[::2], values[1::2], strict=True)]


Matrix = list[list[Fraction]]


def product(a: Matrix, b: Matrix, c: Matrix) -> tuple[Matrix, Matrix]:
    """`a b + c` exactly, and the sum of sizes, by which errors are judged."""
    exact = [
        [c[i][j] + sum(x * b[k][j] for k, x in enumerate(a[i])) for j in range(8)]
        for i in range(16)
    ]
    sizes = [
        [abs(c[i][j]) + sum(abs(x * b[k][j]) for k, x in enumerate(a[i])) for j in range(8)]
        for i in range(16)
    ]
    return exact, sizes


def matrix_row(lane: int) -> Place:
    """The matrix and the row whose address a lane gives to ldmatrix."""
    return lane // 8, lane % 8


def matrix_elements(lane: int, transposed: bool) -> list[Place]:
    """Row and column of the two elements of each matrix that a lane gets."""
    group, inner = divmod(lane, 4)
    places = [(group, 2 * inner), (group, 2 * inner + 1)]
    return [(column, row) for row, column in places] if transposed else places
