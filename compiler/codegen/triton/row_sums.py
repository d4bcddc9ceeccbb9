"""Kernels whose programs visit many rows, to sum values over them besides what they store.

The gradient of a layer_norm has a value for each element of a row, which needs sums along the row,
and sums over all rows for each column. A program visits a few rows at a time, as many rows apart as
all programs visit at once, and keeps the sums of its columns in registers: so operands are read
once. Another kernel adds the sums of all programs in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from compiler.codegen.kernel.analysis import loop_dependencies, reduction_levels, store_roots
from compiler.codegen.kernel.body import KernelBody, Store
from compiler.codegen.trace import Expr, Term, all_parts, ordered
from compiler.codegen.triton.emit import THREADS, Emitter
from compiler.codegen.triton.expressions import program_count
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.triton.numpy_names import TYPES
from compiler.codegen.triton.tiling.schedules import (
    MAX_WARPS,
    WARPS,
    TileSchedule,
    choose_schedule,
)
from compiler.codegen.writer import Names
from compiler.ir.dims import product
from compiler.ir.types import DType
from compiler.support.thresholds import threshold

WARPS_AT_ONCE = threshold(
    "row_sum_warps", 132 * 16, "warps",
    "a kernel that sums over rows has at most so many", small=8,
)  # fmt: skip
THREAD_BYTES = 64
"""Bytes of the widest operand that a thread holds: half and twice as many took longer (H200)."""


def row_programs(kernel: KernelBody) -> tuple[int, int]:
    """The most programs that sum over the rows of a kernel, and the rows of each at a time.

    The first is 0 if a row does not fit into a tile.
    """
    if len(kernel.loops) != 1 or kernel.ends:
        return 0, 0
    schedule, rows = _schedule(kernel), product(kernel.shape)
    if schedule.across or not all(schedule.persistent):
        return 0, 0
    most = max(1, WARPS_AT_ONCE.value // schedule.warps)
    if isinstance(rows, int):
        most = min(most, -(-rows // schedule.elements))
    return most, schedule.elements


def emit_row_sums(kernel: KernelBody, names: Names, comment: Sequence[str]) -> KernelSource:
    """Emit the source of a kernel with sums over rows, and its launch."""
    return _RowSumEmitter(kernel, names.make(kernel.name), comment).emit()


def _schedule(kernel: KernelBody) -> TileSchedule:
    """The schedule of one block of rows, with the warps that leave each thread a few vectors.

    Those are vectors of the rows, or of their sums in float32.
    """
    schedule, loop_deps = choose_schedule(kernel), loop_dependencies(kernel)
    widths = [e.dtype.itemsize for e in loop_deps if e.fn == "load" and loop_deps[e]]
    widest = max(schedule.elements * max(widths, default=1), DType.FP32.itemsize)
    nbytes = max(schedule.iterations) * widest
    warps = max(WARPS, min(MAX_WARPS, nbytes // (THREAD_BYTES * THREADS)))
    return replace(schedule, warps=warps)


class _RowSumEmitter(Emitter):
    """Emits the loop over blocks of rows; what does not depend on a row is computed before it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.schedule = _schedule(self.kernel)
        self.names.taken.add("program")
        self.in_rows = False

    def emit(self) -> KernelSource:
        """Emit the sums of columns, the loop over rows, and the stores of the sums."""
        sums = {s: self.names.make("total") for s in self.kernel.stores if _is_row_sum(s)}
        self._begin(sums)
        for level in reduction_levels(self.kernel.stores):
            self._reduce(level)
        for store, total in sums.items():  # before the stores: an output may alias an input
            (term,) = cast(Expr, store.value).args
            value = f"tl.where(live & {self.loops[0].live}, {self._value(term)}, 0)"
            self.body.line(f"{total} += tl.sum({value}, 0)[None, :]")
        self._store([store for store in self.kernel.stores if not _is_row_sum(store)])
        self.body.depth -= 1
        self.in_rows = False
        for store, total in sums.items():
            place = f"{self._pointer(store.operand)} + {self._offset(store.indices, store.shape)}"
            self.body.line(f"tl.store({place}, {total}, {self.loops[0].live})")
        return self._kernel_source({"LANES": self.schedule.elements}, self._options())

    def _begin(self, sums: dict[Store, str]) -> None:
        """Emit what precedes the loop over blocks of rows, and begin it."""
        line, count = self.body.line, self._size(product(self.kernel.shape))
        line("program = tl.program_id(0).to(INDEX)")
        self._iteration_indices(0)
        for load in self._loads_of_columns():
            self._value(load)
        for store, total in sums.items():
            shape = f"(1, {self.loops[0].width})"
            line(f"{total} = tl.zeros({shape}, {TYPES[cast(Expr, store.value).dtype]})")
        line(f"for start in range(program * LANES, {count}, {self.kernel.programs} * LANES):")
        self.body.depth += 1
        self.in_rows = True
        line("lane = start + tl.arange(0, LANES)[:, None]")
        line(f"live = lane < {count}")

    def _loads_of_columns(self) -> Iterator[Expr]:
        """The loads, one for each column, that are the same for every row."""
        for part in all_parts(store_roots(self.kernel.stores)):
            used = {term.fn for term in ordered(part)} if part.fn == "load" else set[str]()
            if "loop" in used and used.isdisjoint({"index", "reduce"}):
                yield part

    def _text(self, part: Expr) -> str:
        return "program" if part.fn == "program" else super()._text(part)

    def _varies_by_element(self, term: Expr) -> bool:
        """True outside the loop over rows, where no value has a row."""
        return not self.in_rows or super()._varies_by_element(term)

    def _mask(self, used: Iterable[Term], guard: Term | None, extra: Term = 0) -> str:
        mask = super()._mask(used, guard, extra)
        return mask if self.in_rows else mask.removeprefix("live & ")

    def _launch(self) -> str:
        arguments = [*self.pointers, *map(str, self.sizes), f"LANES={self.schedule.elements}"]
        arguments += ["INDEX=INDEX", *(f"{key}={n}" for key, n in self._options().items())]
        grid, count = str(self.kernel.programs), product(self.kernel.shape)
        if not isinstance(count, int):
            grid = f"min({grid}, {program_count(count, self.schedule.elements)})"
        return f"{self.name}[({grid},)]({', '.join(arguments)})"


def _is_row_sum(store: Store) -> bool:
    """True for the store of a program's sum over rows."""
    return isinstance(store.value, Expr) and store.value.fn == "row_sum"
