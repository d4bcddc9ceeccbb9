"""Products of matrices: tiles of the result, each the sum of products of tiles of the factors.

Programs go through the result in groups of rows of tiles, so that what they read stays in cache.
Factors are read by strides, so that a transposed one needs no copy; a stack of matrices is a second
axis of programs, along which a factor that has one matrix for all stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.codegen.frame import NumpyOperand
from compiler.codegen.triton.emit import Written
from compiler.codegen.triton.spelling import POINTERS, SIZE, TYPES, number
from compiler.codegen.writer import Names
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import DType, Shape


@dataclass(frozen=True)
class Matrix:
    """A value as a stack of matrices: its shape, the last two axes swapped where `turned`."""

    operand: NumpyOperand
    shape: Shape
    turned: bool = False

    @property
    def rows(self) -> Size:
        """How many rows each matrix has."""
        return self.shape[-1] if self.turned else self.shape[-2]

    @property
    def columns(self) -> Size:
        """How many columns each matrix has."""
        return self.shape[-2] if self.turned else self.shape[-1]

    @property
    def strides(self) -> tuple[Size, Size]:
        """Elements from a row to the next, and from a column to the next."""
        return (1, self.shape[-1]) if self.turned else (self.shape[-1], 1)

    def stack_strides(self, stack: Shape) -> list[Size]:
        """Elements from a matrix to the next along each axis of a stack; 0 where it has but one."""
        own = (1,) * (len(stack) - len(self.shape) + 2) + tuple(self.shape[:-2])
        inner = self.shape[-2:]
        return [
            0 if size == 1 else product((*own[axis + 1 :], *inner)) for axis, size in enumerate(own)
        ]


_TEMPLATE = """@triton.jit
def {name}({parameters}):
{comment}
    tile = tl.program_id(0).to(INDEX)
    down, across = tl.cdiv({rows}, ROWS), tl.cdiv({columns}, COLUMNS)
    group = tile // (GROUP * across) * GROUP
    height = tl.minimum(down - group, GROUP)
    place = tile % (GROUP * across)
    i = ((group + place % height) * ROWS + tl.arange(0, ROWS))[:, None]
    j = (place // height * COLUMNS + tl.arange(0, COLUMNS))[None, :]
{stack}
    total = tl.zeros((ROWS, COLUMNS), {held})
    for start in range(0, {inner}, INNER):
        k = start + tl.arange(0, INNER)
        a = tl.load({a}, (i < {rows}) & (k < {inner})[None, :], other=0)
        b = tl.load({b}, (k < {inner})[:, None] & (j < {columns}), other=0)
        total = tl.dot(a, b, total, input_precision="ieee", out_dtype={held})
    tl.store({out}, {value}, (i < {rows}) & (j < {columns}))"""


def emit_product(
    names: Names, kind: str, a: Matrix, b: Matrix, out: Matrix, scale: float,
    comment: Sequence[str],
) -> Written:  # fmt: skip
    """The kernel for out = scale * a @ b over the stack of matrices that `out` is; its launch."""
    return _Product(names.make(kind), a, b, out, scale, comment).emit()


class _Product:
    def __init__(
        self, name: str, a: Matrix, b: Matrix, out: Matrix, scale: float, comment: Sequence[str]
    ) -> None:
        self.name, self.scale, self.comment = name, scale, comment
        self.stack: Shape = out.shape[:-2]
        self.a, self.b, self.out = a, b, out
        self.names = Names({"tl", "triton", "i", "j", "k", "a", "b", "total", "start", "tile"})
        self.pointers = {
            each.operand.name: self.names.make(f"{each.operand.name}_ptr") for each in (a, b, out)
        }
        self.sizes: dict[Dim, str] = {}

    def emit(self) -> Written:
        """The text of the kernel with tiles that suit most sizes, and the call of it."""
        values = self._values()
        parameters = [*self.pointers.values(), *self.sizes.values()]
        parameters += [f"{each}: tl.constexpr" for each in (*_TILES, "GROUP", "INDEX")]
        text = _TEMPLATE.format(name=self.name, parameters=", ".join(parameters), **values)
        lines = [line for line in text.split("\n") if line]
        pairs = {self.pointers[each.operand.name]: each for each in (self.a, self.b, self.out)}
        types = {name: POINTERS[each.operand.type.dtype] for name, each in pairs.items()}
        types |= dict.fromkeys(self.sizes.values(), SIZE)
        constants = {**self._tiles(), "GROUP": GROUP}
        return Written(self.name, lines, [], self._launch(), types, constants)

    def _tiles(self) -> dict[str, int]:
        return _tiles(self.a.rows, self.b.columns, self.a.columns)

    def _values(self) -> Mapping[str, str]:
        rows, inner, columns = self.a.rows, self.a.columns, self.b.columns
        dtype = self.out.operand.type.dtype
        held = DType.FP64 if dtype is DType.FP64 else DType.FP32
        value = "total" if self.scale == 1.0 else f"total * {number(self.scale)}"
        return {
            "rows": self._size(rows),
            "inner": self._size(inner),
            "columns": self._size(columns),
            "stack": "\n".join(self._stack_lines()),
            "held": TYPES[held],
            "a": self._place("a", self.a, "i", "k[None, :]"),
            "b": self._place("b", self.b, "k[:, None]", "j"),
            "out": self._place("out", self.out, "i", "j"),
            "value": value if held is dtype else f"({value}).to({TYPES[dtype]})",
            "comment": "\n".join(f"    # {line}" for line in self.comment),
        }

    def _stack_lines(self) -> list[str]:
        """Where in each value the matrices of a program begin."""
        if not self.stack:
            return []
        lines = ["    matrix = tl.program_id(1).to(INDEX)"]
        for axis, size in enumerate(self.stack):
            inner = product(self.stack[axis + 1 :])
            lines.append(f"    m{axis} = matrix // {self._size(inner)} % {self._size(size)}")
        for label, each in (("a", self.a), ("b", self.b), ("out", self.out)):
            strides = enumerate(each.stack_strides(self.stack))
            steps = [f"m{axis} * {self._size(s)}" for axis, s in strides if s != 0]
            lines.append(f"    {label}_first = {' + '.join(steps) or '0'}")
        return lines

    def _place(self, label: str, each: Matrix, row: str, column: str) -> str:
        down, across = (self._size(stride) for stride in each.strides)
        first = [f"{label}_first"] if self.stack else []
        parts = [self.pointers[each.operand.name], *first]
        parts += [row if down == "1" else f"{row} * {down}"]
        parts += [column if across == "1" else f"{column} * {across}"]
        return " + ".join(parts)

    def _size(self, size: Size) -> str:
        if not isinstance(size, Dim):
            return str(size)
        if size not in self.sizes:
            self.sizes[size] = self.names.make(str(size))
        return self.sizes[size]

    def _launch(self) -> str:
        tiles = self._tiles()
        down = f"-(-({self.a.rows}) // {tiles['ROWS']})"
        across = f"-(-({self.b.columns}) // {tiles['COLUMNS']})"
        grid = f"({down} * {across}, {product(self.stack)})"
        options = ", ".join(f"{key}={value}" for key, value in tiles.items())
        given = ", ".join([*self.pointers, *map(str, self.sizes)])
        return f"{self.name}[{grid}]({given}, {options}, GROUP={GROUP}, INDEX=INDEX)"


GROUP = 8
"""Rows of tiles that programs go through together."""

_TILES = ("ROWS", "COLUMNS", "INNER")


def _tiles(rows: Size, columns: Size, inner: Size) -> dict[str, int]:
    """Sides of tiles: 64, and less where a side is known to be smaller; 16 at least."""
    limits = {"ROWS": (rows, 64), "COLUMNS": (columns, 64), "INNER": (inner, 32)}
    return {key: _side(size, most) for key, (size, most) in limits.items()}


def _side(size: Size, most: int) -> int:
    if isinstance(size, Dim):
        return most
    return max(16, min(most, 1 << max(0, size - 1).bit_length()))
