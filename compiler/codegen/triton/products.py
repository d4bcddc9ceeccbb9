"""Tiled matmul kernels: matrix products, and convolutions as implicit matrix products.

A program of `MatmulBody` computes one tile of the result and loops over K a tile at a time, each a
`tl.dot` of the left factor at (row, k) and the right one at (k, column). The address of a factor's
element is any arithmetic of those indices, so that a transposed matrix or the windows of an image
need no copy. Programs traverse the result in groups of rows of tiles, for L2 locality; stacks of
results follow each other. The stored value is any expression of the sum and its indices.

A result of few tiles would occupy few multiprocessors. With a large K, it is split (split-K): each
part of the sum has its own programs, and another kernel combines the parts in a fixed order.

The columns of the right factor may be summed too, as the gradient of a bias is: the first programs
do that, one for each tile of columns (and part). Each reads what a program of the product reads of
the right factor, so that it ends no later, and multiplies nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from compiler.codegen.kernel.analysis import store_roots
from compiler.codegen.kernel.body import MatmulBody, Source, Store, number_of
from compiler.codegen.trace import Expr, Term, all_parts, ordered
from compiler.codegen.triton.cost import KernelTraffic, by_parts, kernel_cost
from compiler.codegen.triton.emit import Emitter
from compiler.codegen.triton.expressions import Loop
from compiler.codegen.triton.kernel_source import KernelSource, Variants
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.tiling.measured import DeviceTiles
from compiler.codegen.triton.tiling.product_tiles import ProductTiling, of_bytes, split_length
from compiler.codegen.triton.tiling.strides import contiguous_run
from compiler.codegen.triton.tiling.tiles import BF16X6, MIN_SIDE, TileChoice
from compiler.codegen.writer import Names
from compiler.ir.dims import Dim, Size, is_multiple, product
from compiler.ir.types import DType, Shape
from compiler.support.dataclass import dataclass

GROUP = 8
"""Rows of tiles that consecutive programs traverse together."""

_FACTOR_HELPERS = {DType.BF16: "factor"}
"""The helper applied to factors of a dtype before they are multiplied."""

_PROGRAM = "tile = tl.program_id(0).to(INDEX)"

_HEAD = "down, across = tl.cdiv({rows}, ROWS), tl.cdiv({columns}, COLUMNS)"

_STACK = "matrix, tile = tile // (down * across), tile % (down * across)"
_STACK_OF_SUMS = "matrix, tile = tile // across, tile % across"

_COLUMNS = "j = (tile * COLUMNS + tl.arange(0, COLUMNS))[None, :]"

_TILE = """
group = tile // (GROUP * across) * GROUP
height = tl.minimum(down - group, GROUP)
place = tile % (GROUP * across)
i = ((group + place % height) * ROWS + tl.arange(0, ROWS))[:, None]
j = (place // height * COLUMNS + tl.arange(0, COLUMNS))[None, :]
""".strip().split("\n")

_AXES = ("i", "j", "left", "right")
_SIDES = (("i", "left"), ("right", "j"))
"""The axes of a tile, and those of its factors."""

_TAKEN = (
    "tl triton tile down across group height place i j i_live j_live matrix start inner left right "
    "left_live right_live first sums ROWS COLUMNS INNER PARTS GROUP INDEX range float"
).split()


@dataclass(frozen=True)
class TileFunction:
    """A function `name(tile, …)` that computes one tile of a product, and how it is called.

    `pointers` are the types of its pointer parameters by operand, `sizes` its other arguments, in
    order. Its constants are those of one of the `choices`, then GROUP and INDEX.
    """

    name: str
    lines: Sequence[str]
    helpers: Sequence[str]
    pointers: Mapping[str, str]
    sizes: Sequence[Dim]
    rows: Size
    columns: Size
    choices: Sequence[TileChoice]
    traffic: KernelTraffic


def emit_tiles(
    tiles: MatmulBody, names: Names, comment: Sequence[str], device: DeviceTiles
) -> KernelSource:
    """Emit the source of a matmul kernel for a device, and its launch."""
    return _TileEmitter(tiles, names.make(tiles.name), comment, device).emit()


def emit_tile_function(tiles: MatmulBody, names: Names, device: DeviceTiles) -> TileFunction:
    """Emit the function that computes a tile, which a kernel calls."""
    return _TileEmitter(tiles, names.make(f"{tiles.name}_tile"), (), device, True).function()


class _TileEmitter(Emitter):
    def __init__(
        self, kernel: MatmulBody, name: str, comment: Sequence[str], device: DeviceTiles,
        in_steps: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(kernel, name, comment)
        self.names.taken |= {*_TAKEN}
        self.precision = kernel.precision
        self.parts = kernel.parts
        self.loops = [Loop(size, 0, False, *name) for size, name in zip(
            self.kernel.loops, (("left", "left_live"), ("right", "right_live")), strict=True
        )]  # fmt: skip
        self.stack: Shape = self.kernel.shape[:-2]
        self.rows, self.columns = self.kernel.shape[-2:]
        self.tile_axes: dict[Expr, frozenset[str]] = {}
        self.column_sum = next((s for s in self.kernel.stores if _is_column_sum(s)), None)
        tiling = ProductTiling(kernel, self._dots(), device, kernel.precision)
        self.choices = tiling.step_choices() if in_steps else tiling.choices()
        self.sums_at_once = any(choice.tile.columns < MIN_SIDE for choice in self.choices)
        self.by_parts = any(choice.tile.arithmetic == BF16X6 for choice in self.choices)
        self.masked = self._masked_axes()

    def emit(self) -> KernelSource:
        """Emit the K loop, then the stores; before them, the programs that sum columns."""
        self.body.line(_PROGRAM)
        self._emit_tile()
        tile = self.choices[-1].tile
        source = self._kernel_source({**tile.constants(), "GROUP": GROUP}, tile.options())
        traffic = by_parts(source.traffic) if tile.arithmetic == BF16X6 else source.traffic
        return replace(source, variants=self._variants(), traffic=traffic)

    def _masked_axes(self) -> frozenset[str]:
        """The axes along which some tile may end beyond the product."""
        pairs = (pair for dot in self._dots() for pair in zip(dot.parts(), _SIDES, strict=True))
        if any(self._tile_axes(factor) != frozenset(sides) for factor, sides in pairs):
            return frozenset(_AXES)  # whose masks also broadcast
        inner = self.loops[0].size
        is_even = self.parts == 1 or inner == split_length(inner, self.parts) * self.parts
        is_even = is_even and not self.kernel.ends
        tiles = [choice.tile for choice in self.choices]
        whole = {
            "i": all(is_multiple(self.rows, tile.rows) for tile in tiles),
            "j": all(is_multiple(self.columns, tile.columns) for tile in tiles),
            "left": is_even and all(is_multiple(inner, tile.inner) for tile in tiles),
        }
        whole["right"] = whole["left"]
        return frozenset(axis for axis in _AXES if not whole[axis])

    def _masks(self, sizes: Mapping[str, str]) -> None:
        """Define the masks of those axes of these that have one."""
        masked = {axis: size for axis, size in sizes.items() if axis in self.masked}
        if masked:
            names = ", ".join(f"{axis}_live" for axis in masked)
            self.body.line(f"{names} = {', '.join(f'{a} < {n}' for a, n in masked.items())}")

    def function(self) -> TileFunction:
        """Emit the function that computes the tile of a number."""
        assert self.column_sum is None
        self.body.line("tile = tl.cast(tile, INDEX)")
        self._emit_tile()
        pointers = {name: self.pointer_types[name] for name in self.pointers}
        parameters = ["tile", *self.pointers.values(), *self.sizes.values()]
        parameters += [f"{constant}: tl.constexpr" for constant in (*self._constants(), "INDEX")]
        head = ["@triton.jit", f"def {self.name}({', '.join(parameters)}):"]
        traffic = kernel_cost(self.kernel, self.loads, self.loop_deps)
        return TileFunction(
            self.name, [*head, *self.body.lines], list(self.helpers), pointers, list(self.sizes),
            self.rows, self.columns, self.choices, traffic,
        )  # fmt: skip

    def _emit_tile(self) -> None:
        self.body.line(_HEAD.format(**self._sides()))
        if self.column_sum is not None:
            self._emit_column_sum(self.column_sum)
        for line in [*([_STACK] if self.stack else []), *_TILE]:
            self.body.line(line)
        sides = self._sides()
        self._masks({"i": sides["rows"], "j": sides["columns"]})
        self._emit_product()
        self._store([store for store in self.kernel.stores if not _is_column_sum(store)])

    def _sides(self) -> dict[str, str]:
        return {"rows": self._size(self.rows), "columns": self._size(self.columns)}

    def _emit_column_sum(self, store: Store) -> None:
        """Emit the branch of the programs that sum columns, and begin that of the others."""
        known, loads, count = dict(self.text), len(self.loads), self._column_sum_programs("across")
        total = cast(Expr, store.value)
        (factor,) = total.parts()
        self.body.line(f"if tile < {count}:  # sums of columns")
        self.body.depth += 1
        for line in [*([_STACK_OF_SUMS] if self.stack else []), _COLUMNS]:
            self.body.line(line)
        self._masks({"j": self._sides()["columns"]})
        self._hoist(factor, 1)
        self.body.line(f"sums = tl.zeros((INNER, COLUMNS), {TYPES[total.dtype]})")
        self._enter_loop(self.choices[-1].tile.stages)
        self.body.line(f"sums += {self._factor(factor, ('right', 'j'))}")
        self._leave(self.loops[0])
        self.text[total] = "tl.sum(sums, 0)[None, :]"
        self._store([store])
        self.text = known
        del self.loads[loads:]
        self.body.depth -= 1
        self.body.line("else:")
        self.body.depth += 1
        self.body.line(f"tile -= {count}")

    def _column_sum_programs(self, across: str) -> str:
        """The number of programs that sum columns, for tiles `across` a row of tiles, as text."""
        return f"{across} * {product(self.stack)}" if self.stack else across

    def _emit_product(self) -> None:
        totals = {dot: self.names.make("total") for dot in self._dots()}
        for dot, total in totals.items():
            for factor, axis in zip(dot.parts(), (0, 1), strict=True):
                self._hoist(factor, axis)
            self.body.line(f"{total} = tl.zeros((ROWS, COLUMNS), {_total_type(dot)})")
        self._enter_loop()
        for dot, total in totals.items():
            left, right = map(self._factor, dot.parts(), _SIDES)
            if self.by_parts or self.sums_at_once:
                helper = "few_dots" if self.sums_at_once else "float32_dot"
                self.helpers[helper] = None
                parts = "PARTS" if self.by_parts else "1"
                self.body.line(f"{total} = {helper}({left}, {right}, {total}, {parts})")
                continue
            dtype = dot.parts()[0].dtype
            precision = self.precision if dtype is DType.FP32 else "ieee"
            helper = "rounded_tf32" if precision == "tf32" else _FACTOR_HELPERS.get(dtype, "")
            if helper:
                self.helpers[helper] = None
                left, right = f"{helper}({left})", f"{helper}({right})"
            options = f'input_precision="{precision}", out_dtype={_total_type(dot)}'
            self.body.line(f"{total} = tl.dot({left}, {right}, {total}, {options})")
        self._leave(self.loops[0])
        for dot, total in totals.items():
            if of_bytes(dot):
                self.body.line(f"{total} = {total}.to({TYPES[dot.dtype]})")
        self.text |= totals

    def _dots(self) -> list[Expr]:
        """The dot products, which share the K loop: one, or those of a cell's gates."""
        return [part for part in all_parts(store_roots(self.kernel.stores)) if part.fn == "dot"]

    def _enter_loop(self, stages: int = 0) -> None:
        """Begin the K loop, along columns of the left tile and rows of the right one.

        With `stages`, the right tile alone, whose loads Triton pipelines only if told to.
        """
        end, before = self._end(), ""
        iterations = end
        if self.parts > 1:
            length = iterations = self._size(split_length(self.loops[0].size, self.parts))
            before = "first + "
            self.body.line(f"first = ({self._index(0)}) * {length}")
            if self.kernel.ends:
                iterations = f"tl.minimum({length}, {end} - first)"
        if stages:
            self.body.line(f"for start in tl.range(0, {iterations}, INNER, num_stages={stages}):")
        else:
            self.body.line(f"for start in range(0, {iterations}, INNER):")
        self.body.depth += 1
        self.body.line(f"inner = ({before}start + tl.arange(0, INNER)).to(INDEX)")
        names = {"right": "inner[:, None]"}
        if not stages:
            names = {"left": "inner[None, :]"} | names
        self.body.line(f"{', '.join(names)} = {', '.join(names.values())}")
        self._masks(dict.fromkeys(names, end))
        self.open_loops = frozenset({0, 1})

    def _end(self) -> str:
        """The end of the K loop."""
        end = self.kernel.ends.get(0)
        return self._size(self.loops[0].size) if end is None else self._value(end)

    def _factor(self, value: Expr, sides: tuple[str, str]) -> str:
        """A factor's tile, padded with 0 beyond its rows, columns or K range."""
        text = self._value(value)
        masks = [f"{axis}_live" for axis in sides if axis in self.masked]
        is_padded = self._is_padded(value) and self._tile_axes(value) == frozenset(sides)
        return text if is_padded or not masks else f"tl.where({' & '.join(masks)}, {text}, 0)"

    def _is_padded(self, value: Expr) -> bool:
        """True for a load whose masked elements are 0."""
        if value.fn != "load":
            return False
        other = value.args[len(cast(Source, value.extra).shape) + 1 :]
        return not other or other[0] == 0

    # ---- random numbers ----

    def _dependencies(self, part: Expr) -> list[Expr]:
        row_offsets = self._row_offsets(part)
        if row_offsets is None:
            return super()._dependencies(part)
        return [
            part.parts()[0],
            *(i for i, _ in row_offsets if isinstance(i, Expr)),
            self.kernel.indices[-1],
        ]

    def _random_number(self, part: Expr) -> str:
        """A random number per element; four consecutive ones in a row share a Philox block."""
        row_offsets = self._row_offsets(part)
        if row_offsets is None:
            return super()._random_number(part)
        self.helpers["uniform_tile"] = None
        key, begin = self._value(part.args[0]), self._sum_text(row_offsets, frozenset("i"))
        return f"uniform_tile({key}, {part.extra}, {begin}, j, ROWS, COLUMNS)"

    def _row_offsets(self, part: Expr) -> list[tuple[Term, Size]] | None:
        """The row offsets if columns are contiguous, with four per Philox block; else None."""
        index = part.args[1] if part.fn == "uniform" and part.dtype is DType.FP32 else None
        if not isinstance(index, Expr) or index.fn != "ravel":
            return None
        *rows, (last, stride) = self._joined(index.args, cast(Shape, index.extra)) or [(0, 0)]
        whole = last is self.kernel.indices[-1] and stride == 1
        aligned = all(is_multiple(n, 4) and "j" not in self._tile_axes(i) for i, n in rows)
        return rows if whole and aligned else None

    # ---- offsets and masks ----

    def _index(self, axis: int) -> str:
        if axis >= len(self.stack):
            return "ij"[axis - len(self.stack)]
        inner = product(self.stack[axis + 1 :])
        text = "matrix" if inner == 1 else f"matrix // {self._size(inner)}"
        return text if axis == 0 else f"{text} % {self._size(self.stack[axis])}"

    def _tile_axes(self, root: Term) -> frozenset[str]:
        """The tile axes that an expression varies along."""
        if not isinstance(root, Expr):
            return frozenset()
        for part in ordered(root, self.tile_axes):
            self.tile_axes[part] = self._axes_of(part)
        return self.tile_axes[root]

    def _axes_of(self, part: Expr) -> frozenset[str]:
        if part.fn == "dot":
            return frozenset("ij")
        if part.fn == "column_sum":
            return frozenset("j")
        if part.fn == "loop":
            return frozenset({self.loops[number_of(part)].name})
        if part.fn == "index":
            axis = number_of(part) - len(self.stack)
            return frozenset("ij"[axis]) if axis >= 0 else frozenset()
        return frozenset[str]().union(*(self.tile_axes[operand] for operand in part.parts()))

    def _axes_of_all(self, terms: Iterable[Term]) -> frozenset[str]:
        return frozenset[str]().union(*map(self._tile_axes, terms))

    def _load(self, part: Expr) -> str:
        source = cast(Source, part.extra)
        rank = len(source.shape)
        indices, guard = part.args[:rank], part.args[rank:]
        offset = self._offset(indices, source.shape, self._tile_axes(part))
        if self._would_lie_along_k(part):
            offset = self._by_columns(offset)
        place = f"{self._pointer(source.operand)} + {offset}"
        mask = self._mask((*indices, *guard[:1]), guard[0] if guard else None)
        other = self._value(guard[1]) if guard else "0"
        return f"tl.load({place}, {mask}, {other})" if mask else f"tl.load({place})"

    def _by_columns(self, offset: str) -> str:
        if not self.sums_at_once:
            return f"tl.max_contiguous({offset}, [1, 1])"
        self.helpers["by_columns"] = None
        return f"by_columns({offset})"

    def _would_lie_along_k(self, part: Expr) -> bool:
        """True for right factors, without tensor cores, whose longest contiguous runs are along K.

        Triton would lay out their tiles in shared memory along K; then the threads of a warp, which
        multiply adjacent columns, would read from one bank.
        """
        wide = part.dtype.is_float and part.dtype.itemsize > 2
        without_tensor_cores = wide and self.precision == "ieee" and not self.by_parts
        if not without_tensor_cores or "right" not in self._tile_axes(part):
            return False
        shape = cast(Source, part.extra).shape
        offset, columns = self._joined(part.args[: len(shape)], shape), len(self.kernel.shape) - 1
        return contiguous_run(offset, columns, None) < contiguous_run(offset, None, 1)

    def _offset(
        self, indices: Sequence[Term], shape: Shape, over: frozenset[str] = frozenset("ij")
    ) -> str:
        """The offset of an element in elements, broadcast over tile axes."""
        return self._sum_text(self._joined(indices, shape), over)

    def _store_offset(self, store: Store, mask: str) -> str:
        over = frozenset("j" if _is_column_sum(store) else "ij")
        return self._offset(store.indices, store.shape, over)

    def _sum_text(self, pairs: Sequence[tuple[Term, Size]], over: frozenset[str]) -> str:
        """The sum of indices times strides, broadcast over tile axes."""
        parts = [
            self._value(i) + (f" * {self._size(stride)}" if stride != 1 else "")
            for i, stride in pairs
        ]
        parts += [f"{axis} * 0" for axis in sorted(over - self._axes_of_all(i for i, _ in pairs))]
        return f"({' + '.join(parts) or '0'})"

    def _mask(self, used: Iterable[Term], guard: Term | None, extra: Term = 0) -> str:
        axes = sorted(self._axes_of_all((*used, extra)) & self.masked)
        parts = [f"{axis}_live" for axis in axes]
        if guard is not None:
            parts.append(self._guard(guard))
        return " & ".join(parts)

    # ---- the launch ----

    def _variants(self) -> Variants | None:
        """The tiles to choose from when the number of rows is known, if it is symbolic."""
        if len(self.choices) == 1 or not isinstance(self.rows, Dim):
            return None
        limits = tuple(choice.most for choice in self.choices if choice.most is not None)
        tiles = (choice.tile for choice in self.choices)
        return Variants(self.rows, limits, tuple(t.constants() | t.options() for t in tiles))

    def _constants(self) -> list[str]:
        return [*self.choices[-1].tile.constants(), "GROUP"]

    def _launch(self) -> str:
        tile = self.choices[-1].tile
        sides, settings = (
            (str(tile.rows), str(tile.columns)),
            [f"{key}={value}" for key, value in (tile.constants() | tile.options()).items()],
        )
        if self._variants() is not None:
            sides = tuple(f"{Variants.mark}[{key!r}]" for key in ("ROWS", "COLUMNS"))
            settings = [f"**{Variants.mark}"]
        tiles_m, tiles_n = (
            f"-(-({size}) // {side})"
            for size, side in zip((self.rows, self.columns), sides, strict=True)
        )
        arguments = ", ".join([*self.pointers, *map(str, self.sizes)])
        stack = f" * ({product(self.stack)})" if self.stack else ""
        grid = f"{tiles_m} * {tiles_n}{stack}"
        if self.column_sum is not None:
            grid += f" + {self._column_sum_programs(tiles_n)}"
        options = f"GROUP={GROUP}, INDEX=INDEX, {', '.join(settings)}"
        return f"{self.name}[({grid},)]({arguments}, {options})"


def _is_column_sum(store: Store) -> bool:
    """True for the store of a sum over K of the right factor."""
    return isinstance(store.value, Expr) and store.value.fn == "column_sum"


def _total_type(dot: Expr) -> str:
    """The type in which a dot product is summed."""
    return TYPES[DType.INT32 if of_bytes(dot) else dot.dtype]
