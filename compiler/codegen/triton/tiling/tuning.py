"""Chooses tiles of products by timing them on a device, and stores the fastest of each product.

A file of the cache has the lines of a table of measured products (`measured`) after a line that
names the device and the versions. It is data: its lines are parsed, and other files are not used.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from pathlib import Path

from compiler.codegen.triton.tiling.measured import (
    DeviceTiles,
    MeasuredProduct,
    ProductSizes,
    TileTable,
    parse,
)
from compiler.codegen.triton.tiling.tiles import HALF, HALF_FACTORS, SINGLE_BY_PARTS
from compiler.ir.graph import Graph
from compiler.ir.text.parser import parse as parse_graph
from compiler.support.dataclass import dataclass
from compiler.support.private_folders import private_folder, suppress_disk_errors

Clock = Callable[[MeasuredProduct], float | None]
"""The microseconds of a product with a tile; None if it does not run."""

SPLITS = (1, 2, 4, 8)
"""Parts of the K range that are timed, each of at least `MIN_PART` iterations."""

MIN_PART = 512
ROWS = (64, 512, 4096)
"""The numbers of rows for which products are timed whose number of rows is dynamic."""

ENTRY = re.compile(r"[A-Za-z0-9.-]+-triton-[A-Za-z0-9.-]+\.txt")
"""The names of files: titles end with the version of Triton."""
MOST_BYTES = 1 << 20
_HEAD = "# fluid tiles 1: "


@dataclass(frozen=True)
class Product:
    """A product of a program: how it may be multiplied, its form and sizes, if it may be split."""

    arithmetics: tuple[str, ...]
    form: str
    sizes: ProductSizes
    splits: bool = True


@dataclass(frozen=True)
class RecordingTable(TileTable):
    """A table that records the products that are looked up."""

    asked: dict[Product, None] = field(default_factory=dict[Product, None])

    def nearest(
        self, arithmetics: Iterable[str], form: str, sizes: ProductSizes, *, splits: bool
    ) -> MeasuredProduct | None:
        """As of a TileTable; of dynamic numbers of rows, those of `ROWS` are recorded."""
        if splits or sizes.rows in ROWS:
            self.asked[Product(tuple(arithmetics), form, sizes, splits)] = None
        return super().nearest(tuple(arithmetics), form, sizes, splits=splits)


def candidates(product: Product, device: DeviceTiles) -> list[MeasuredProduct]:
    """The tiles to time for a product: those of the device's table and of the rule, with splits."""
    known = [measured.tile for measured in device.table.products]
    tiles = [t for t in (*known, *HALF, *SINGLE_BY_PARTS) if t.arithmetic in product.arithmetics]
    _, rows, columns, inner = product.sizes.all
    fitting = dict.fromkeys(tile.fit(rows, columns, inner) for tile in tiles)
    most = inner // MIN_PART if product.splits else 1
    splits = [parts for parts in SPLITS if parts <= max(1, most)]
    return [
        MeasuredProduct(product.form, product.sizes, tile, parts, None, None)
        for tile in fitting
        for parts in splits
    ]


def tune(
    products: Iterable[Product],
    device: DeviceTiles,
    known: TileTable,
    clock: Clock,
    library: Clock,
) -> list[MeasuredProduct]:
    """The fastest tile of each product that is not known yet; those that do not run are left out.

    `library` times the vendor's library: for matrices in half precision, which it may be given.
    Products over windows of images are not timed.
    """
    there = {(each.form, each.sizes, each.tile.arithmetic) for each in known.products}
    found: list[MeasuredProduct] = []
    for product in dict.fromkeys(products):
        keys = {(product.form, product.sizes, kind) for kind in product.arithmetics}
        if product.form.startswith("windows") or keys & there:
            continue
        times = [(clock(candidate), candidate) for candidate in candidates(product, device)]
        ran = [(took, candidate) for took, candidate in times if took is not None]
        if ran:
            took, best = min(ran, key=lambda pair: pair[0])
            found.append(_measured(best, took, library))
    return found


def _measured(best: MeasuredProduct, took: float, library: Clock) -> MeasuredProduct:
    """The fastest tile with the time that it took, and that of the library."""
    is_given = best.tile.arithmetic == HALF_FACTORS and best.sizes.stack == 1
    by_library = library(best) if is_given else None
    return replace(
        best,
        microseconds=round(took, 1),
        library=None if by_library is None else round(by_library, 1),
    )


_PRODUCT = """graph product {{
  feed x: {dtype}[{x}]
  feed y: {dtype}[{y}]
  (Out=out: {dtype}[{out}]) = matmul(X=x, Y=y) {{'transpose_X': {turn_x}, 'transpose_Y': {turn_y}}}
  return out
}}
"""


def product_graph(candidate: MeasuredProduct) -> Graph:
    """A product as a graph of one op."""
    _, rows, columns, inner = candidate.sizes.all
    stack = (candidate.sizes.stack,) * (candidate.sizes.stack > 1)
    turned = [side == "T" for side in candidate.form]
    sides = (
        (inner, rows) if turned[0] else (rows, inner),
        (columns, inner) if turned[1] else (inner, columns),
        (rows, columns),
    )
    x, y, out = (", ".join(map(str, (*stack, *side))) for side in sides)
    dtype = "f16" if candidate.tile.arithmetic == HALF_FACTORS else "f32"
    text = _PRODUCT.format(dtype=dtype, x=x, y=y, out=out, turn_x=turned[0], turn_y=turned[1])
    return parse_graph(text, "a timed product")


@dataclass(frozen=True)
class TunedTiles:
    """The file of a device, which `title` names with the versions, in a folder of the cache."""

    folder: Path
    title: str

    @property
    def name(self) -> str:
        """The file's name."""
        return re.sub(r"[^A-Za-z0-9.]+", "-", self.title) + ".txt"

    def read(self) -> str:
        """The stored lines; empty if there are none, with a warning if the file is damaged."""
        try:
            with private_folder(self.folder) as folder:
                text = folder.read(self.name, MOST_BYTES).decode()
            head, *lines = text.splitlines() or [""]
            if head != _HEAD + self.title:
                raise ValueError(f"its first line is not {_HEAD + self.title!r}")
            parse(lines, self.name)
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            warnings.warn(f"{self.folder / self.name} is not used: {error}", stacklevel=2)
            return ""
        return "".join(f"{line}\n" for line in lines)

    def add(self, products: Sequence[MeasuredProduct]) -> str:
        """Store more products; return all lines. A folder that cannot be written is not."""
        lines = self.read() + "".join(f"{product}\n" for product in products)
        with suppress_disk_errors(self.folder), private_folder(self.folder, create=True) as folder:
            folder.write(self.name, [f"{_HEAD}{self.title}\n{lines}".encode()])
        return lines
