"""Chooses the products that a vendor's library computes, by the measured times of both.

A library's call has no epilogue: what the kernel of a product computes on the way, another kernel
then does, which reads and writes the result once more. The library is chosen if it takes less time
with that. The times are those of the product whose tile a kernel would have, scaled to the sizes;
of symbolic sizes, to what heuristics take them as.
"""

from __future__ import annotations

from compiler.codegen.triton.tiling.measured import ProductSizes, device_tiles
from compiler.codegen.triton.tiling.schedules import size_hint
from compiler.codegen.triton.tiling.tiles import HALF_FACTORS
from compiler.ir.libraries import LibraryChoice, MatrixProduct, SplitWork

ALIKE = 1.0
"""The largest distance at which measured times are compared: that of twice as many results."""

LEAST_GAIN = 0.05
"""The part of a kernel's time that a library must save."""


def library_choice(
    product: MatrixProduct, split: SplitWork, gpu: str, tiles: str
) -> LibraryChoice | None:
    """Return whether the library is to compute a product of factors in half precision.

    `tiles` are measured products besides those of the GPU. None if no such product was measured, or
    if the library alone is not faster.
    """
    device = device_tiles(gpu, tiles)
    sizes = ProductSizes(1, *map(size_hint, product.sides))
    near = device.table.nearest((HALF_FACTORS,), product.form, sizes, splits=True)
    if near is None or near.library is None or near.microseconds is None:
        return None
    scale = sizes.count / near.sizes.count
    kernel, library = near.microseconds * scale, near.library * scale
    most = kernel * (1 - LEAST_GAIN)
    if near.sizes.distance(sizes) > ALIKE or library > most:
        return None
    rows, columns, inner = sizes.all[1:]
    times = f"{rows} × {columns} × {inner}: a kernel takes {kernel:.1f} µs, cuBLAS {library:.1f}"
    if not split.launches:
        return LibraryChoice(True, times)
    memory = device.table.memory
    if memory is None:
        return LibraryChoice(False, f"{times}, and other kernels what is not known for the rest")
    moved, summed = size_hint(split.nbytes), size_hint(split.summed)
    more = memory.microseconds(moved, summed, split.launches)
    return LibraryChoice(
        library + more <= most, f"{times} and other kernels {more:.1f} for the rest"
    )
