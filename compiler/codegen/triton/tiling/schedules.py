"""Chooses the elements and loop iterations of a program, by shape.

A GPU with hundreds of multiprocessors needs at least as many programs, each with enough threads to
hide memory latency. Operands read more than once, by a second reduction or by a store, are kept in
registers after the first read if they fit (a persistent reduction).
"""

from __future__ import annotations

from compiler.codegen.kernel.analysis import (
    loop_dependencies,
    reduced_loop,
    reduction_levels,
    store_roots,
)
from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.triton.expressions import power_of_two
from compiler.codegen.triton.tiling.strides import iterations_are_strided
from compiler.ir.dims import Dim, Size, evaluate, product
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

BLOCK_SIZE = threshold(
    "program_elements", 1024, "elements",
    "a program of a GPU kernel without loops has so many, a power of two", small=16,
)  # fmt: skip
ELEMENTS = threshold(
    "program_tile", 4096, "elements times iterations",
    "a tile of a GPU kernel has so many, a power of two", small=32,
)  # fmt: skip
PERSISTENT_ELEMENTS = threshold(
    "persistent_tile", 16384, "elements times iterations",
    "a larger tile is not kept in registers: a reduction is a loop", small=32,
)  # fmt: skip
MIN_ELEMENTS = threshold(
    "least_tile", 1024, "elements times iterations",
    "a tile is not made smaller for the sake of more programs", small=8,
)  # fmt: skip
TARGET_PROGRAMS = threshold(
    "programs", 132, "programs", "tiles are smaller, and reductions split, while there are fewer",
    small=4,
)  # fmt: skip
MIN_COALESCED = threshold(
    "coalesced", 16, "adjacent elements",
    "a program has at least so many if its iterations are not contiguous", small=2,
)  # fmt: skip

MIN_MOMENTS = 2
"""Fewest elements of a program that computes moments: Triton 3.6 fails to compile some with one."""

LOOP_TILE = threshold(
    "loop_tile", 1024, "contiguous iterations",
    "a longer reduction that is not kept in registers is a loop over tiles of so many", small=8,
)  # fmt: skip
STRIDED_LOOP_TILE = threshold(
    "strided_loop_tile", 64, "strided iterations",
    "a longer reduction is a loop over tiles of so many", small=4,
)  # fmt: skip

SECTOR = 32
"""Bytes that a GPU moves at least."""

RAGGED_TILE = threshold(
    "ragged_tile", 32, "iterations",
    "a tile of a loop whose end differs between elements has so many, a power of two", small=4,
)  # fmt: skip

WARPS, MAX_WARPS = 4, 16
"""Warps of a program by default, and at most."""

ASSUMED_SIZE = 64
"""The value assumed for symbolic dims in decisions that affect only speed."""


@dataclass(frozen=True)
class TileSchedule:
    """Elements of a program; for each loop the iterations per tile, and if one tile covers it.

    Elements are along axis 0 and iterations along axis 1, or the other way where `across` is set.
    If `padded` is not 0, each part of a split reduction has so many elements, the last ones unused.
    """

    elements: int
    iterations: tuple[int, ...] = ()
    persistent: tuple[bool, ...] = ()
    across: bool = False
    warps: int = WARPS
    padded: int = 0


def size_hint(size: Size, assumed: int = ASSUMED_SIZE) -> int:
    """An estimate of a size, whose symbolic dims are assumed to have this size."""
    return evaluate(size, dict.fromkeys(size.names, assumed)) if isinstance(size, Dim) else size


def choose_schedule(kernel: KernelBody) -> TileSchedule:
    """Choose the schedule of a kernel."""
    if not kernel.loops:
        return TileSchedule(BLOCK_SIZE.value)
    if kernel.ends:
        return _ragged_schedule(kernel)
    across = iterations_are_strided(kernel) and not _persistent_loops(kernel, "order")
    repeated = _repeated_loops(kernel)
    sizes = [kernel.trip_count(n) for n in range(len(kernel.loops))]
    limits = [_most_iterations(kernel, n in repeated, across) for n in range(len(sizes))]
    persistent = tuple(isinstance(s, int) and s <= n for s, n in zip(sizes, limits, strict=True))
    iterations = [
        power_of_two(size) if is_persistent and isinstance(size, int) else _loop_tile(size, across)
        for size, is_persistent in zip(sizes, persistent, strict=True)
    ]
    elements = _tile_elements(kernel, all(persistent))
    least = MIN_COALESCED.value if across else MIN_MOMENTS if computes_moments(kernel) else 1
    count = _elements_per_program(product(kernel.shape), max(iterations), least, elements)
    padded = _padded_part(kernel, count, elements // STRIDED_LOOP_TILE.value) if across else 0
    count = max(count, padded)
    room = max(1, elements // count)
    iterations = [
        length if is_persistent else max(length, min(room, _bound(size)))
        for length, size, is_persistent in zip(iterations, sizes, persistent, strict=True)
    ]
    persistent = tuple(
        isinstance(s, int) and s <= n for s, n in zip(sizes, iterations, strict=True)
    )
    warps = min(MAX_WARPS, max(WARPS, count * max(iterations) // (ELEMENTS.value // WARPS)))
    return TileSchedule(count, tuple(iterations), persistent, across, warps, padded)


def strided_elements(kernel: KernelBody) -> int:
    """The elements of a program whose iterations are strided, if there are enough programs."""
    return _tile_elements(kernel, persistent=False) // STRIDED_LOOP_TILE.value


def _tile_elements(kernel: KernelBody, persistent: bool) -> int:
    """The elements times iterations of a tile: fewer, if it accumulates moments."""
    return ELEMENTS.value // (1 if persistent or not computes_moments(kernel) else 2)


def _padded_part(kernel: KernelBody, elements: int, most: int) -> int:
    """The elements that a part of a split reduction is padded to, at most `most`; 0 if it is not.

    A part is padded if programs would share its sectors: one program then reads its rows.
    """
    size = product(kernel.shape[1:])
    if kernel.split_size is None or not isinstance(size, int) or elements % size == 0:
        return 0
    deps = loop_dependencies(kernel)
    widths = [part.dtype.itemsize for part in deps if part.fn == "load" and deps[part]]
    shared = any(size * width % SECTOR for width in widths)
    return power_of_two(size) if shared and power_of_two(size) <= most else 0


def _ragged_schedule(kernel: KernelBody) -> TileSchedule:
    """The schedule of a kernel with data-dependent loop ends: few iterations, more elements."""
    sizes = [kernel.trip_count(n) for n in range(len(kernel.loops))]
    persistent = tuple(
        isinstance(size, int) and size <= ELEMENTS.value and n not in kernel.ends
        for n, size in enumerate(sizes)
    )
    tiles = [(RAGGED_TILE if n in kernel.ends else LOOP_TILE).value for n in range(len(sizes))]
    iterations = tuple(
        _bound(size) if is_persistent else tile
        for size, is_persistent, tile in zip(sizes, persistent, tiles, strict=True)
    )
    return TileSchedule(max(1, ELEMENTS.value // 4 // max(iterations)), iterations, persistent)


def _bound(size: Size) -> int:
    """The smallest power of two that is at least `size`; a large one if it is symbolic."""
    return power_of_two(size) if isinstance(size, int) else ELEMENTS.value


def loop_tile(across: bool) -> int:
    """Iterations of a tile of a looped reduction; they are strided if elements lie `across`."""
    return (STRIDED_LOOP_TILE if across else LOOP_TILE).value


def _loop_tile(size: Size, across: bool) -> int:
    return min(loop_tile(across), _bound(size))


def _most_iterations(kernel: KernelBody, repeated: bool, across: bool) -> int:
    """Most iterations of a persistent tile: as many as fit, if the loop is repeated."""
    if not repeated:
        return STRIDED_LOOP_TILE.value if across else ELEMENTS.value
    most = PERSISTENT_ELEMENTS.value // (MIN_COALESCED.value if across else 1)
    return most * (1 + _has_single_load(kernel))


def _has_single_load(kernel: KernelBody) -> bool:
    """True if an iteration loads one operand, and keeps few other values."""
    loop_deps = loop_dependencies(kernel)
    loads = [part for part in loop_deps if part.fn == "load" and loop_deps[part]]
    return len(loads) == 1 and not computes_moments(kernel)


def computes_moments(kernel: KernelBody) -> bool:
    """True if iterations accumulate a count, a mean and squared deviations."""
    return any(
        part.extra == "moments" for level in reduction_levels(kernel.stores) for part in level
    )


def _repeated_loops(kernel: KernelBody) -> set[int]:
    """The loops that need more than one pass."""
    loop_deps = loop_dependencies(kernel)
    passes = [reduced_loop(parts[0]) for parts in reduction_levels(kernel.stores)]
    passes += {n for root in store_roots(kernel.stores) for n in loop_deps[root]}
    return {n for n in passes if passes.count(n) > 1} | _persistent_loops(kernel, "scan", "order")


def _persistent_loops(kernel: KernelBody, *functions: str) -> set[int]:
    """The loops of functions that need all iterations in one tile."""
    return {reduced_loop(part) for part in loop_dependencies(kernel) if part.fn in functions}


def _elements_per_program(count: Size, iterations: int, least: int, elements: int) -> int:
    """Elements of a program, reduced if there would be too few programs."""
    width = max(least, elements // iterations)
    if isinstance(count, Dim):
        return width
    width = min(width, power_of_two(count))
    least_tile, programs = MIN_ELEMENTS.value, TARGET_PROGRAMS.value
    while width > least and width * iterations > least_tile and -(-count // width) < programs:
        width //= 2
    return width
