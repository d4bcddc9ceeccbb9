"""One kernel for a loop over steps, each of one or more products: all steps of a recurrence.

The host would launch the products of each step, and the device would wait for each launch. Here the
programs of one launch go through the steps together: each computes its tiles of a product, adjacent
ones, whose factors its cache then has, and waits for the others at a counter in device memory,
which is 0 before and after the launch. So all must run at once: there are at most as many as
multiprocessors, and the launch is cooperative, which a driver refuses unless all have room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.codegen.triton.cost import KernelTraffic, Sizes
from compiler.codegen.triton.expressions import size_type
from compiler.codegen.triton.kernel_source import KernelSource, Variants
from compiler.codegen.triton.products import GROUP, TileFunction
from compiler.codegen.triton.tiling.tiles import ProductTile
from compiler.codegen.writer import Names, comment_lines
from compiler.ir.dims import Dim, Size, names_of
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass

_TAKEN = (
    "tl triton table arrived step steps row tile tiles most first meet range GROUP INDEX".split()
)

COOPERATIVE = {"launch_cooperative_grid": True}
"""The launch option of a kernel whose programs wait for each other."""


def step_table(steps: Sequence[Sequence[int]], width: int) -> Array:
    """The numbers of all steps, a row for each: int64 [steps, width]."""
    return np.array(steps, np.int64).reshape(len(steps), width)


def most_of(steps: Sequence[Sequence[int]], place: int) -> int:
    """The largest of one number of all steps; 0 if there are none."""
    return max((step[place] for step in steps), default=0)


@dataclass(frozen=True)
class StepLoop:
    """A loop over steps: the numbers of a step, and what the host has of them.

    `rows`, one of the `numbers`, is that of all products, at most `most`. The arrays are the table
    of numbers, int64 [steps, numbers], and the counter.
    """

    numbers: Sequence[Dim]
    rows: Dim
    steps: Size
    most: Dim
    table: str
    arrived: str


def common_rows(functions: Sequence[TileFunction], numbers: Sequence[Dim]) -> Dim | None:
    """The number of rows of all products of a step; None if they cannot be one kernel."""
    names = {str(number) for number in numbers}
    used = [size for function in functions for size in function.sizes]
    mixed = any(names & names_of(size) and size not in numbers for size in used)
    (rows, *others) = {function.rows for function in functions}
    return rows if isinstance(rows, Dim) and rows in numbers and not (mixed or others) else None


def emit_step_loop(
    functions: Sequence[TileFunction], loop: StepLoop, name: str, comment: Sequence[str] = ()
) -> KernelSource:
    """Emit the kernel of a loop whose steps call these functions in order."""
    return _Emitter(functions, loop, name, comment).emit()


class _Emitter:
    def __init__(
        self, functions: Sequence[TileFunction], loop: StepLoop, name: str, comment: Sequence[str]
    ) -> None:
        self.functions, self.loop, self.name, self.comment = functions, loop, name, comment
        self.names = Names({*_TAKEN, name, *(function.name for function in functions)})
        pointers = {operand: None for function in functions for operand in function.pointers}
        self.pointers = {operand: self.names.make(f"{operand}_ptr") for operand in pointers}
        used: dict[Size, None] = {
            size: None for function in functions for size in (function.rows, *function.sizes)
        }
        self.sizes = {size: self.names.make(str(size)) for size in used}

    def emit(self) -> KernelSource:
        """Emit the functions, the kernel and its launch."""
        limits, settings = self._settings()
        constants = {key: n for key, n in settings[-1].items() if key in self._constants()}
        options = {key: n for key, n in settings[-1].items() if key not in constants}
        variants = Variants(self.loop.most, limits, settings) if limits else None
        helpers = [helper for function in self.functions for helper in function.helpers]
        lines = [line for function in self.functions for line in function.lines]
        return KernelSource(
            self.name, [*lines, *self._lines()], [*dict.fromkeys(helpers), "meet"],
            self._launch(settings[-1], bool(limits)), self._types(), {**constants, "GROUP": GROUP},
            self._traffic(), options, variants,
        )  # fmt: skip

    # ---- the kernel ----

    def _lines(self) -> Iterator[str]:
        parameters = ["table", "steps", "arrived", *self.pointers.values()]
        parameters += [self.sizes[size] for size in self._parameters()]
        constants = [f"{name}: tl.constexpr" for name in (*self._constants(), "GROUP", "INDEX")]
        any_number = ["steps", *(self.sizes[size] for size in self._parameters())]
        yield f"@triton.jit(do_not_specialize={any_number!r})"
        yield f"def {self.name}({', '.join([*parameters, *constants])}):"
        yield from comment_lines(self.comment)
        yield "    for step in range(steps):"
        yield from (f"        {line}" for line in self._numbers())
        count = len(self.functions)
        for place, function in enumerate(self.functions):
            yield from (f"        {line}" for line in self._phase(place, function))
            done = "step + 1" if count == 1 else f"step * {count} + {place + 1}"
            yield f"        meet(arrived, {done}, steps{f' * {count}' * (count > 1)})"

    def _numbers(self) -> Iterator[str]:
        """Loads of the numbers of a step that its products use."""
        yield f"row = table + step * {len(self.loop.numbers)}"
        for place, number in enumerate(self.loop.numbers):
            if number in self.sizes:
                yield f"{self.sizes[number]} = tl.load(row + {place}).to(INDEX)"

    def _phase(self, place: int, function: TileFunction) -> Iterator[str]:
        """A program's tiles of one product."""
        names = self._suffixed(function.choices[0].tile, place)
        rows, columns = self.sizes[self.loop.rows], self._size(function.columns)
        sides = list(names)[:2]
        yield f"tiles = tl.cdiv({rows}, {sides[0]}) * tl.cdiv({columns}, {sides[1]})"
        yield "most = tl.cdiv(tiles, tl.num_programs(0))"
        yield "first = tl.program_id(0) * most"
        yield "for tile in range(first, tl.minimum(first + most, tiles)):"
        arguments = ["tile", *(self.pointers[operand] for operand in function.pointers)]
        arguments += [*map(self._size, function.sizes), *names, "GROUP", "INDEX"]
        yield f"    {function.name}({', '.join(arguments)})"

    def _size(self, size: Size) -> str:
        return self.sizes[size] if isinstance(size, Dim) else str(size)

    def _parameters(self) -> Sequence[Size]:
        """The sizes that are the same in all steps."""
        return [size for size in self.sizes if size not in self.loop.numbers]

    def _types(self) -> dict[str, str]:
        types = {"table": "*i64:16", "steps": size_type(self.loop.steps), "arrived": "*i32:16"}
        for function in self.functions:
            types |= {self.pointers[name]: kind for name, kind in function.pointers.items()}
        return types | {self.sizes[size]: size_type(size) for size in self._parameters()}

    # ---- tiles ----

    def _suffixed(self, tile: ProductTile, place: int) -> dict[str, int]:
        """The constants of the tile of a product."""
        return {f"{name}_{place}" if place else name: n for name, n in tile.constants().items()}

    def _constants(self) -> list[str]:
        tiles = [function.choices[0].tile for function in self.functions]
        return [name for place, tile in enumerate(tiles) for name in self._suffixed(tile, place)]

    def _settings(self) -> tuple[tuple[int, ...], tuple[Mapping[str, int], ...]]:
        """Numbers of rows, and constants and options up to each and beyond the last."""
        choices = [choice for function in self.functions for choice in function.choices]
        limits = sorted({choice.most for choice in choices if choice.most is not None})
        return tuple(limits), tuple(map(self._setting, [*limits, None]))

    def _setting(self, rows: int | None) -> Mapping[str, int]:
        tiles = [_chosen(function, rows) for function in self.functions]
        launched = replace(
            tiles[0],
            warps=max(tile.warps for tile in tiles),
            stages=max(tile.stages for tile in tiles),
        )
        constants = {key: n for p, t in enumerate(tiles) for key, n in self._suffixed(t, p).items()}
        return {**constants, **launched.options(), **COOPERATIVE}

    # ---- the launch ----

    def _launch(self, settings: Mapping[str, int], varies: bool) -> str:
        loop, counts = self.loop, list[str]()
        texts = {k: f"{Variants.mark}[{k!r}]" if varies else str(n) for k, n in settings.items()}
        for place, function in enumerate(self.functions):
            names = self._suffixed(function.choices[0].tile, place)
            rows, columns, *_ = (texts[name] for name in names)
            counts.append(f"-(-({loop.most}) // {rows}) * -(-({function.columns}) // {columns})")
        programs = counts[0] if len(counts) == 1 else f"max({', '.join(counts)})"
        arguments = [loop.table, str(loop.steps), loop.arrived, *self.pointers]
        arguments += [*map(str, self._parameters()), f"GROUP={GROUP}", "INDEX=INDEX"]
        arguments += [f"**{Variants.mark}"] if varies else [f"{k}={n}" for k, n in settings.items()]
        return f"{self.name}[(resident({programs}),)]({', '.join(arguments)})"

    def _traffic(self) -> KernelTraffic:
        """The cost of all products of one step, whose rows only a step knows."""
        costs = [function.traffic for function in self.functions]
        work: Counter[Sizes] = Counter()
        for cost in costs:
            work.update(cost.operations)
        reads = tuple(access for cost in costs for access in cost.reads)
        writes = tuple(access for cost in costs for access in cost.writes)
        return KernelTraffic(reads, writes, work, costs[0].products, costs[0].factor)


def _chosen(function: TileFunction, rows: int | None) -> ProductTile:
    """The tile of a product of at most so many rows, or of more than all limits."""
    return next(
        choice.tile
        for choice in function.choices
        if choice.most is None or (rows is not None and rows <= choice.most)
    )
