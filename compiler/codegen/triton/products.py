"""Sums of products as tiles: matrix products, and convolutions as matrix products of what is read.

A kernel of `Tiles` has a tile of the result a program, and goes through the turns of its sum a tile
at a time, each a `tl.dot` of what the left factor has for (row, turn) and the right one for (turn,
column). Where a factor's elements lie is any arithmetic of those numbers, so that a transposed
matrix or the windows of an image need no copy. Programs go through the result in groups of rows of
tiles, so that what they read stays in cache; stacks of results follow each other. What is stored is
any expression of the sum and of the place it belongs to.

A result of few tiles would keep few programs busy. Where its sum is long, that is cut into parts,
each of which has programs of its own; what they give is joined by another kernel, in one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from compiler.codegen.trace import Expr, Term, all_parts, ordered
from compiler.codegen.triton.emit import Emitter, Written
from compiler.codegen.triton.expressions import Loop, power_of_two, roots_of
from compiler.codegen.triton.kernel_ir import Source, Tiles, number_of
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.tiling.schedules import guess
from compiler.codegen.writer import Names
from compiler.ir.dims import Dim, Size, is_multiple, product
from compiler.ir.types import DType, Shape

GROUP = 8
"""Rows of tiles that programs go through together."""

WIDEST = {"ROWS": 64, "COLUMNS": 64, "INNER": 32}
"""Sides of a tile of the result, and how many turns of the sum stand side by side."""

HALF = {"ROWS": 128, "COLUMNS": 128, "INNER": 32}
"""The same for 16 bits where the result has enough of such tiles; eight warps work on one."""

PROGRAMS = 256
"""Programs that keep a large device busy."""

LEAST_TURNS = 512
"""Turns that a part of a sum has at least."""

MOST_PARTS = 32
"""Parts that a sum is cut into at most."""

_STEP = 64
"""Turns of a part come in so many, which no tile stands across."""

_LEAST = 16
"""The least side that `tl.dot` takes."""

_HEAD = """
tile = tl.program_id(0).to(INDEX)
down, across = tl.cdiv({rows}, ROWS), tl.cdiv({columns}, COLUMNS)
""".strip().split("\n")

_STACK = "matrix, tile = tile // (down * across), tile % (down * across)"

_TILE = """
group = tile // (GROUP * across) * GROUP
height = tl.minimum(down - group, GROUP)
place = tile % (GROUP * across)
i = ((group + place % height) * ROWS + tl.arange(0, ROWS))[:, None]
j = (place // height * COLUMNS + tl.arange(0, COLUMNS))[None, :]
i_live, j_live = i < {rows}, j < {columns}
""".strip().split("\n")

_TAKEN = (
    "tl triton tile down across group height place i j i_live j_live matrix start turn left right "
    "left_live right_live first ROWS COLUMNS INNER GROUP INDEX range float"
).split()


def parts_of(stack: Sequence[Size], rows: Size, columns: Size, inner: Size) -> int:
    """Into how many parts the sums of a stack of products are cut; 1 where sizes are not known."""
    sides = [*stack, rows, columns]
    if any(isinstance(size, Dim) for size in sides):
        return 1
    parts = PROGRAMS // max(_tiles(stack, rows, columns, WIDEST), 1)
    return max(1, min(parts, guess(inner) // LEAST_TURNS, MOST_PARTS))


def _tiles(stack: Sequence[Size], rows: Size, columns: Size, sides: Mapping[str, int]) -> int:
    """How many tiles results have."""
    down, across = -(-guess(rows) // sides["ROWS"]), -(-guess(columns) // sides["COLUMNS"])
    return guess(product(stack)) * down * across


def emit_tiles(tiles: Tiles, names: Names, comment: Sequence[str] = ()) -> Written:
    """The source of a kernel of tiles, and its launch."""
    return _TileEmitter(tiles, names.make(tiles.name), comment).emit()


class _TileEmitter(Emitter):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.names.taken |= {*_TAKEN}
        self.precision = self.lanes.precision if isinstance(self.lanes, Tiles) else "ieee"
        self.parts = self.lanes.parts if isinstance(self.lanes, Tiles) else 1
        self.loops = [Loop(size, 0, False, *name) for size, name in zip(
            self.lanes.loops, (("left", "left_live"), ("right", "right_live")), strict=True
        )]  # fmt: skip
        self.stack: Shape = self.lanes.shape[:-2]
        self.rows, self.columns = self.lanes.shape[-2:]
        self.touched: dict[Expr, frozenset[str]] = {}

    def emit(self) -> Written:
        """The sum over all turns, and what is stored of it."""
        self._head()
        self._sum()
        self._store(self.lanes.stores)
        return self._written({**self._sides(), "GROUP": GROUP}, self._options())

    def _options(self) -> dict[str, int]:
        return {"num_warps": 8} if self._widest() is HALF else {}

    def _head(self) -> None:
        sizes = {"rows": self._size(self.rows), "columns": self._size(self.columns)}
        for line in [*_HEAD, *([_STACK] if self.stack else []), *_TILE]:
            self.body.line(line.format(**sizes))

    def _sum(self) -> None:
        totals = {dot: self.names.make("total") for dot in self._dots()}
        for dot, total in totals.items():
            for factor, side in zip(dot.parts(), (0, 1), strict=True):
                self._hoist(factor, side)
            self.body.line(f"{total} = tl.zeros((ROWS, COLUMNS), {TYPES[dot.dtype]})")
        self._enter_turns()
        for dot, total in totals.items():
            left = self._factor(dot.parts()[0], ("i", "left"))
            right = self._factor(dot.parts()[1], ("right", "j"))
            if dot.parts()[0].dtype is DType.BF16:
                self.helpers["factor"] = None
                left, right = f"factor({left})", f"factor({right})"
            precision = self.precision if dot.parts()[0].dtype is DType.FP32 else "ieee"
            options = f'input_precision="{precision}", out_dtype={TYPES[dot.dtype]}'
            self.body.line(f"{total} = tl.dot({left}, {right}, {total}, {options})")
        self._leave(self.loops[0])
        self.text |= totals

    def _dots(self) -> list[Expr]:
        """The sums of products, which share their turns: one, or those of the gates of a cell."""
        return [part for part in all_parts(roots_of(self.lanes.stores)) if part.fn == "dot"]

    def _enter_turns(self) -> None:
        """A turn stands across the left factor and down the right one."""
        inner, before = self._size(self.loops[0].size), ""
        turns = inner
        if self.parts > 1:
            turns, before = self._size(self._share()), "first + "
            self.body.line(f"first = ({self._index(0)}) * {turns}")
        self.body.line(f"for start in range(0, {turns}, INNER):")
        self.body.depth += 1
        self.body.line(f"turn = ({before}start + tl.arange(0, INNER)).to(INDEX)")
        self.body.line("left, right = turn[None, :], turn[:, None]")
        self.body.line(f"left_live, right_live = left < {inner}, right < {inner}")
        self.open = frozenset({0, 1})

    def _share(self) -> Size:
        """The turns of a part of the sum."""
        each = (self.loops[0].size + self.parts - 1) // self.parts
        return (each + _STEP - 1) // _STEP * _STEP

    def _factor(self, value: Expr, sides: tuple[str, str]) -> str:
        """A factor's tile; 0 where there is no such row, column or turn."""
        text = self._value(value)
        if self._is_padded(value) and self._touches(value) == frozenset(sides):
            return text
        return f"tl.where({sides[0]}_live & {sides[1]}_live, {text}, 0)"

    def _is_padded(self, value: Expr) -> bool:
        """True for a load, which gives 0 where there is no such element."""
        if value.fn != "load":
            return False
        other = value.args[len(cast(Source, value.extra).shape) + 1 :]
        return not other or other[0] == 0

    # ---- random numbers ----

    def _below(self, part: Expr) -> list[Expr]:
        row = self._row_of(part)
        if row is None:
            return super()._below(part)
        return [
            part.parts()[0],
            *(i for i, _ in row if isinstance(i, Expr)),
            self.lanes.indices[-1],
        ]

    def _drawn(self, part: Expr) -> str:
        """A random number an element; four in a row have their words from one block."""
        row = self._row_of(part)
        if row is None:
            return super()._drawn(part)
        self.helpers["uniform_tile"] = None
        key, begin = self._value(part.args[0]), self._sum_of(row, frozenset("i"))
        return f"uniform_tile({key}, {part.extra}, {begin}, j, ROWS, COLUMNS)"

    def _row_of(self, part: Expr) -> list[tuple[Term, Size]] | None:
        """Where rows begin whose columns lie together and, by fours, in one block; else None."""
        index = part.args[1] if part.fn == "uniform" and part.dtype is DType.FP32 else None
        if not isinstance(index, Expr) or index.fn != "ravel":
            return None
        *rows, (last, stride) = self._joined(index.args, cast(Shape, index.extra)) or [(0, 0)]
        whole = last is self.lanes.indices[-1] and stride == 1
        apart = all(is_multiple(n, 4) and "j" not in self._touches(i) for i, n in rows)
        return rows if whole and apart else None

    # ---- where elements are ----

    def _index(self, axis: int) -> str:
        if axis >= len(self.stack):
            return "ij"[axis - len(self.stack)]
        inner = product(self.stack[axis + 1 :])
        text = "matrix" if inner == 1 else f"matrix // {self._size(inner)}"
        return text if axis == 0 else f"{text} % {self._size(self.stack[axis])}"

    def _touches(self, root: Term) -> frozenset[str]:
        """The sides of a tile along which an expression differs."""
        if not isinstance(root, Expr):
            return frozenset()
        for part in ordered(root, self.touched):
            self.touched[part] = self._sides_of(part)
        return self.touched[root]

    def _sides_of(self, part: Expr) -> frozenset[str]:
        if part.fn == "dot":
            return frozenset("ij")
        if part.fn == "loop":
            return frozenset({self.loops[number_of(part)].name})
        if part.fn == "index":
            axis = number_of(part) - len(self.stack)
            return frozenset("ij"[axis]) if axis >= 0 else frozenset()
        return frozenset[str]().union(*(self.touched[each] for each in part.parts()))

    def _all(self, terms: Iterable[Term]) -> frozenset[str]:
        return frozenset[str]().union(*map(self._touches, terms))

    def _load(self, part: Expr) -> str:
        source = cast(Source, part.extra)
        rank = len(source.shape)
        indices, guard = part.args[:rank], part.args[rank:]
        place = f"{self._pointer(source.operand)} + "
        place += self._offset(indices, source.shape, self._touches(part))
        mask = self._mask((*indices, *guard[:1]), guard[0] if guard else None)
        other = self._value(guard[1]) if guard else "0"
        return f"tl.load({place}, {mask}, {other})" if mask else f"tl.load({place})"

    def _offset(
        self, indices: Sequence[Term], shape: Shape, over: frozenset[str] = frozenset("ij")
    ) -> str:
        """Where an element lies behind the first, spread over sides of the tile."""
        return self._sum_of(self._joined(indices, shape), over)

    def _sum_of(self, pairs: Sequence[tuple[Term, Size]], over: frozenset[str]) -> str:
        """The sum of indices times strides, spread over sides of the tile."""
        parts = [
            self._value(i) + (f" * {self._size(stride)}" if stride != 1 else "")
            for i, stride in pairs
        ]
        parts += [f"{side} * 0" for side in sorted(over - self._all(i for i, _ in pairs))]
        return f"({' + '.join(parts) or '0'})"

    def _mask(self, used: Iterable[Term], guard: Term | None, extra: Term = 0) -> str:
        parts = [f"{side}_live" for side in sorted(self._all((*used, extra)))]
        if guard is not None:
            parts.append(self._guard(guard))
        return " & ".join(parts)

    # ---- the launch ----

    def _sides(self) -> dict[str, int]:
        """Sides of tiles: less than the widest where there is less."""
        widest = self._widest()
        sizes = zip(widest, (self.rows, self.columns, self.loops[0].size), strict=True)
        return {key: _side(size, widest[key]) for key, size in sizes}

    def _widest(self) -> dict[str, int]:
        dots = self._dots()
        if len(dots) > 1 or any(map(_wide, dots)):
            columns = max(_LEAST, WIDEST["COLUMNS"] // power_of_two(len(dots)))
            return {**WIDEST, "COLUMNS": columns, "INNER": _LEAST}
        many = _tiles(self.stack, self.rows, self.columns, HALF) >= PROGRAMS
        sides = (self.rows, self.columns)
        fits = all(isinstance(size, Dim) or size >= HALF["ROWS"] for size in sides)
        return HALF if many and fits else WIDEST

    def _constants(self) -> list[str]:
        return [*WIDEST, "GROUP"]

    def _launch(self) -> str:
        sides = self._sides()
        down = f"-(-({self.rows}) // {sides['ROWS']})"
        across = f"-(-({self.columns}) // {sides['COLUMNS']})"
        options = ", ".join(f"{key}={value}" for key, value in (*sides.items(), ("GROUP", GROUP)))
        given = ", ".join([*self.pointers, *map(str, self.sizes)])
        stack = f" * ({product(self.stack)})" if self.stack else ""
        grid = f"({down} * {across}{stack},)"
        more = "".join(f", {name}={number}" for name, number in self._options().items())
        return f"{self.name}[{grid}]({given}, {options}, INDEX=INDEX{more})"


def _wide(dot: Expr) -> bool:
    """True for float32 and float64, of which more turns at once do not fit into registers."""
    return cast(Expr, dot.args[0]).dtype.itemsize > 2


def _side(size: Size, most: int) -> int:
    if isinstance(size, Dim):
        return most
    return max(_LEAST, min(most, power_of_two(size)))
