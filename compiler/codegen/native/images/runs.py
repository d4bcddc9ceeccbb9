"""Copies of runs: a transposition that leaves the last axis where it is."""

from __future__ import annotations

from compiler.codegen.native.images.transposition import Transposition, Walk, chunks
from compiler.codegen.native.images.vectors import powers_of_two
from compiler.codegen.native.kernel import NativeKernel
from compiler.codegen.native.llvm_ir import Index, Value
from compiler.codegen.native.products.nest import named
from compiler.ir.dims import product
from compiler.support.thresholds import threshold

RUN_BYTES = threshold(
    "run_bytes", 1 << 14, "bytes", "a unit of a copy has some runs of so many, or a part of one",
    small=48,
)  # fmt: skip


def run_kernel(given: Transposition) -> NativeKernel:
    """Return the kernel that copies runs along the last axis."""
    walk, runs = Walk(given), _Runs(given)

    def unit(number: Value, _: list[Value]) -> list[Value]:
        _copy_unit(walk, runs, number)
        return []

    walk.f.loop_if_any(walk.first, walk.last, 1, unit)
    sizes, outer = given.sizes, list(given.order[:-1])
    units = chunks(sizes[-1], runs.room) * product(sizes[axis] for axis in outer[:-1])
    if outer:
        units = units * chunks(sizes[outer[-1]], runs.group)
    return NativeKernel([named(walk.f)], units, 0, given.nbytes)


class _Runs:
    """How a unit is made of runs: `room` elements of each, of a `group` of them."""

    def __init__(self, given: Transposition) -> None:
        self.given = given
        self.room = RUN_BYTES.value // given.element.nbytes
        run = given.sizes[-1]
        self.is_short = isinstance(run, int) and run <= self.room
        self.group = max(1, self.room // run) if isinstance(run, int) else 1


def _copy_unit(walk: Walk, runs: _Runs, number: Index) -> None:
    n, last = walk.n, len(walk.sizes) - 1
    number, chunk = n.divmod(number, n.ceil_div(walk.sizes[last], runs.room))
    start = n.mul(chunk, runs.room)
    length = walk.sizes[last]
    if not runs.is_short:
        length = n.min(n.sub(length, start), runs.room)
    outer = list(runs.given.order[:-1])
    if not outer:
        _copy_run(walk, runs.given, walk.moved((0, 0), last, start), length)
        return
    number, group = n.divmod(number, n.ceil_div(walk.sizes[outer[-1]], runs.group))
    base = walk.moved(walk.offsets(number, outer[:-1]), last, start)

    def one(at: Value, _: list[Value]) -> list[Value]:
        _copy_run(walk, runs.given, walk.moved(base, outer[-1], at), length)
        return []

    first = n.mul(group, runs.group)
    end = n.min(n.add(first, runs.group), walk.sizes[outer[-1]])
    walk.f.loop(first, end, 1, one)


def _copy_run(
    walk: Walk, given: Transposition, offsets: tuple[Index, Index], length: Index
) -> None:
    """Copy `length` elements: whole vectors, then halves of vectors and so on."""
    f, n, element = walk.f, walk.n, given.element
    lanes = given.machine.lanes(element)
    source, target = walk.pointers(offsets)

    def move(at: Index, count: int) -> list[Value]:
        value = f.load(element.vector(count), f.address(source, at, element.nbytes))
        f.store(value, f.address(target, at, element.nbytes))
        return []

    whole = n.sub(length, n.mod(length, lanes))
    f.loop_if_any(0, whole, lanes, lambda at, _: move(at, lanes))
    if isinstance(length, int):
        for at, count in powers_of_two(length % lanes):
            move(n.add(whole, at), count)
        return
    for bit in reversed(range((lanes - 1).bit_length())):
        count = 1 << bit
        above = n.sub(length, n.mod(length, 2 * count))
        some = f.compare("ne", n.value(n.mod(n.div(length, count), 2)), n.value(0))
        f.when(some, lambda above=above, count=count: move(above, count))
