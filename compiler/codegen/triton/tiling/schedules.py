"""Chooses the elements and loop iterations of a program, by shape.

A GPU with hundreds of multiprocessors needs at least as many programs, each with enough threads to
hide memory latency. Operands read more than once, by a second reduction or by a store, are kept in
registers after the first read if they fit (a persistent reduction).
"""

from __future__ import annotations

from dataclasses import dataclass

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

BLOCK_SIZE = 1024
"""Elements of a program (thread block) without loops."""

ELEMENTS = 4096
"""Elements times iterations of a tile of four warps."""

PERSISTENT_ELEMENTS = 4 * ELEMENTS
"""Tile size that sixteen warps can keep in registers; twice that with a single operand."""

MIN_ELEMENTS = 1024
"""Tile size below which more programs bring no gain."""

TARGET_PROGRAMS = 132
"""Target number of programs for a large GPU."""

MIN_COALESCED = 16
"""Fewest adjacent elements of a program for coalesced reads along elements."""

MIN_MOMENTS = 2
"""Fewest elements of a program that computes moments: Triton 3.6 fails to compile some with one."""

LOOP_TILE = {False: 1024, True: 64}
"""Iterations of a tile of a looped reduction, for contiguous and for strided iterations."""

SECTOR = 32
"""Bytes that a GPU moves at least."""

RAGGED_TILE = 32
"""Iterations of a tile of a loop whose end differs between elements."""

WARPS = 4
"""Warps of a program by default."""

ASSUMED_SIZE = 64
"""The value assumed for symbolic dims in decisions that affect only speed."""


@dataclass(frozen=True)
class Schedule:
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


def choose_schedule(kernel: KernelBody) -> Schedule:
    """Choose the schedule of a kernel."""
    if not kernel.loops:
        return Schedule(BLOCK_SIZE)
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
    elements = ELEMENTS if all(persistent) or not _computes_moments(kernel) else ELEMENTS // 2
    least = MIN_COALESCED if across else MIN_MOMENTS if _computes_moments(kernel) else 1
    count = _elements_per_program(product(kernel.shape), max(iterations), least, elements)
    padded = _padded_part(kernel, count, elements // LOOP_TILE[True]) if across else 0
    count = max(count, padded)
    room = max(1, elements // count)
    iterations = [
        each if is_persistent else max(each, min(room, _bound(size)))
        for each, size, is_persistent in zip(iterations, sizes, persistent, strict=True)
    ]
    persistent = tuple(
        isinstance(s, int) and s <= n for s, n in zip(sizes, iterations, strict=True)
    )
    warps = min(16, max(WARPS, count * max(iterations) // (ELEMENTS // WARPS)))
    return Schedule(count, tuple(iterations), persistent, across, warps, padded)


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


def _ragged_schedule(kernel: KernelBody) -> Schedule:
    """The schedule of a kernel with data-dependent loop ends: few iterations, more elements."""
    sizes = [kernel.trip_count(n) for n in range(len(kernel.loops))]
    persistent = tuple(
        isinstance(size, int) and size <= ELEMENTS and n not in kernel.ends
        for n, size in enumerate(sizes)
    )
    iterations = tuple(
        _bound(size) if is_persistent else RAGGED_TILE if n in kernel.ends else LOOP_TILE[False]
        for n, (size, is_persistent) in enumerate(zip(sizes, persistent, strict=True))
    )
    return Schedule(max(1, ELEMENTS // 4 // max(iterations)), iterations, persistent)


def _bound(size: Size) -> int:
    """The smallest power of two that is at least `size`; a large one if it is symbolic."""
    return power_of_two(size) if isinstance(size, int) else ELEMENTS


def _loop_tile(size: Size, across: bool) -> int:
    return min(LOOP_TILE[across], _bound(size))


def _most_iterations(kernel: KernelBody, repeated: bool, across: bool) -> int:
    """Most iterations of a persistent tile: as many as fit, if the loop is repeated."""
    if not repeated:
        return LOOP_TILE[True] if across else ELEMENTS
    return (PERSISTENT_ELEMENTS // MIN_COALESCED if across else PERSISTENT_ELEMENTS) * (
        1 + _has_single_load(kernel)
    )


def _has_single_load(kernel: KernelBody) -> bool:
    """True if an iteration loads one operand, and keeps few other values."""
    loop_deps = loop_dependencies(kernel)
    loads = [part for part in loop_deps if part.fn == "load" and loop_deps[part]]
    return len(loads) == 1 and not _computes_moments(kernel)


def _computes_moments(kernel: KernelBody) -> bool:
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
    while (
        width > least and width * iterations > MIN_ELEMENTS and -(-count // width) < TARGET_PROGRAMS
    ):
        width //= 2
    return width
