"""Emits kernels as Triton source: elements become masked blocks, loops tiles or tiled loops.

A kernel without loops has one block of `LANES` elements per program. With loops, elements are along
axis 0 of a tile and iterations along axis 1, or the other way.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.kernel.analysis import (
    accumulator_type,
    integer_limits,
    reduced_loop,
    reduction_levels,
    store_roots,
)
from compiler.codegen.kernel.body import KernelBody, Store
from compiler.codegen.trace import Expr
from compiler.codegen.triton.cost import kernel_cost
from compiler.codegen.triton.expressions import Loop, program_count, size_type
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.triton.numpy_names import SIZE, TYPES
from compiler.codegen.triton.tiling.schedules import WARPS, choose_schedule
from compiler.codegen.triton.tiling.strides import guards_vary
from compiler.codegen.triton.values import Values
from compiler.codegen.writer import Names, comment_lines
from compiler.ir.dims import Size, is_multiple, product
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass

VECTOR = 16
"""Bytes of the longest vector access, and what Triton knows sizes to be multiples of."""

THREADS = 32
"""Threads of a warp."""


_IDENTITY = {"sum": "0", "prod": "1", "max": 'float("-inf")', "min": 'float("inf")'}
_COMBINE = {
    "sum": "{0} + {1}", "prod": "{0} * {1}", "max": "larger({0}, {1})", "min": "smaller({0}, {1})",
}  # fmt: skip
_COMBINE_HELPERS = {"max": "larger", "min": "smaller"}
"""The helpers that combine two numbers; NaN propagates, as in NumPy."""

_FINAL_REDUCTIONS = {
    "prod": ("times", "tl.reduce({0}, {1}, times)"),
    "max": ("largest", "largest({0}, {1})"),
    "min": ("smallest", "smallest({0}, {1})"),
}
"""The helpers that reduce a tile, and their calls."""


def emit(kernel: KernelBody, names: Names, comment: Sequence[str] = ()) -> KernelSource:
    """Emit the source of a kernel, and its launch with names and sizes of the step's scope."""
    return Emitter(kernel, names.make(kernel.name), comment).emit()


@dataclass
class Emitter(Values):
    """Emits one kernel, line by line.

    A loop whose iterations fit in one tile (persistent) is loaded once for several reductions; a
    longer one is a loop over tiles, with one pass for all reductions at the same level, and another
    for the stores inside it.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.schedule = choose_schedule(self.kernel)
        self.padded = self.schedule.padded
        self.column, self.row = "[:, None]", "[None, :]"
        if self.schedule.across:
            self.column, self.row = self.row, self.column
        self.loops = [self._loop(i) for i in range(len(self.schedule.iterations))]

    def _loop(self, index: int) -> Loop:
        name = self.names.make(f"r{index}" if index else "r")
        live = self.names.make(f"{name}_live")
        size, form = self.kernel.loops[index], self.schedule
        return Loop(size, form.iterations[index], form.persistent[index], name, live)

    # ---- kernel ----

    def emit(self) -> KernelSource:
        """Emit the prologue, then reductions level by level, then the stores."""
        self._prologue()
        for level in reduction_levels(self.kernel.stores):
            self._reduce(level)
        self._store_all()
        return self._kernel_source({"LANES": self.schedule.elements}, self._options())

    def _kernel_source(self, constants: dict[str, int], options: dict[str, int]) -> KernelSource:
        """The kernel emitted so far."""
        traffic = kernel_cost(self.kernel, self.loads, self.loop_deps)
        return KernelSource(
            self.name, self._lines(), list(self.helpers), self._launch(), self._types(), constants,
            traffic, options,
        )  # fmt: skip

    def _options(self) -> dict[str, int]:
        """Launch options other than the defaults."""
        return {} if self.schedule.warps == WARPS else {"num_warps": self.schedule.warps}

    def _types(self) -> dict[str, str]:
        """The type of each parameter."""
        pointers = {name: self.pointer_types[operand] for operand, name in self.pointers.items()}
        return pointers | {name: size_type(size) for size, name in self.sizes.items()}

    def _prologue(self) -> None:
        side = self.column if self.loops else ""
        count = product(self.kernel.shape)
        lane = f"tl.program_id(0).to(INDEX) * LANES + tl.arange(0, LANES){side}"
        if not self.loops and self._breaks_vectors(count):
            lane = f"tl.max_contiguous({lane}, 1)"
        self.body.line(f"lane = {lane}")
        self.body.line(f"live = {self._live(count)}")
        if self.kernel.split_size is not None:
            place = self._value(self.kernel.indices[0])
            self.body.line(f"first = {place} * {self._size(self.kernel.split_size)}")
        for index in (n for n, loop in enumerate(self.loops) if loop.persistent):
            self._iteration_indices(index)

    def _live(self, count: Size) -> str:
        """The mask of the elements that exist."""
        if not self.padded:
            return f"lane < {self._size(count)}"
        inside = f"(lane % {self.padded} < {product(self.kernel.shape[1:])})"
        return f"{inside} & (lane < {self._count()})"

    def _count(self) -> Size:
        """The number of elements, those of padded parts included."""
        return product((self.kernel.shape[0], self.padded) if self.padded else self.kernel.shape)

    def _breaks_vectors(self, count: Size) -> bool:
        """True if a mask may end within a vector, so that each element is accessed by itself.

        Adjacent threads then take adjacent elements, so that a warp still accesses whole sectors.
        """
        return not is_multiple(count, self._vector(count)) or guards_vary(self.kernel)

    def _vector(self, count: Size) -> int:
        """What the number of elements must be a multiple of for vector accesses."""
        widths = [store.operand.type.dtype.itemsize for store in self.kernel.stores]
        return VECTOR // min(widths) if isinstance(count, int) and widths else VECTOR

    def _lines(self) -> list[str]:
        parameters = [*self.pointers.values(), *self.sizes.values()]
        parameters += [f"{parameter}: tl.constexpr" for parameter in (*self._constants(), "INDEX")]
        head = [self._decorator(), f"def {self.name}({', '.join(parameters)}):"]
        return [*head, *comment_lines(self.comment), *self.body.lines]

    def _decorator(self) -> str:
        """The decorator; sizes are not specialised, so that other sizes need no recompilation."""
        any_number = [name for size, name in self.sizes.items() if size_type(size) == SIZE]
        return f"@triton.jit(do_not_specialize={any_number!r})" if any_number else "@triton.jit"

    def _constants(self) -> list[str]:
        """The names of constexpr parameters."""
        return ["LANES"]

    def _launch(self) -> str:
        grid = program_count(self._count(), self.schedule.elements)
        arguments = [*self.pointers, *map(str, self.sizes), f"LANES={self.schedule.elements}"]
        arguments += ["INDEX=INDEX", *(f"{key}={n}" for key, n in self._options().items())]
        return f"{self.name}[({grid},)]({', '.join(arguments)})"

    # ---- stores ----

    def _store_all(self) -> None:
        by_loop: dict[int | None, list[Store]] = {}
        for store in self.kernel.stores:
            dependencies = {i for root in store_roots([store]) for i in self.loop_deps[root]}
            varying = [i for i in sorted(dependencies) if not self.loops[i].persistent]
            by_loop.setdefault(varying[0] if varying else None, []).append(store)
        for index, stores in by_loop.items():
            self._store_in(index, stores)

    def _store_in(self, index: int | None, stores: list[Store]) -> None:
        if index is None:
            self._store(stores)
            return
        for root in store_roots(stores):
            self._hoist(root, index)
        self._enter(self.loops[index], index)
        self._store(stores)
        self._leave(self.loops[index])

    def _store(self, stores: list[Store]) -> None:
        """Compute all values before the first store: an output may alias an input."""
        ready = [(store, self._cast(store.value, store.operand.type.dtype)) for store in stores]
        for store, value in ready:
            indices = store.indices if store.where is None else (*store.indices, store.where)
            place = self._pointer(store.operand)
            mask = self._mask(indices, store.where, extra=store.value)
            offset = self._store_offset(store, mask)
            arguments = ", ".join([f"{place} + {offset}", value, *([mask] if mask else [])])
            if store.atomic:  # a sum orders no other memory, so it needs no fence
                self.body.line(f'tl.atomic_add({arguments}, sem="relaxed")')
            else:
                self.body.line(f"tl.store({arguments})")

    def _store_offset(self, store: Store, mask: str) -> str:
        """The offset of a store, which is in order of threads if its mask breaks vectors."""
        offset = self._offset(store.indices, store.shape)
        count = product(self.kernel.shape)
        has_vectors = self.schedule.elements > THREADS * self.schedule.warps
        if not self.loops or mask != "live" or not has_vectors or not self._breaks_vectors(count):
            return offset
        return f"tl.max_contiguous({offset}, [1, 1])"

    # ---- reductions ----

    def _reduce(self, parts: list[Expr]) -> None:
        loop = self.loops[reduced_loop(parts[0])]
        for part in parts:
            self._hoist(part.args[0], reduced_loop(part))
        totals = [self._declare_total(part, loop) for part in parts]
        self._enter(loop, reduced_loop(parts[0]))
        for part, total in zip(parts, totals, strict=True):
            accumulate = self._accumulate_moments if part.extra == "moments" else self._accumulate
            accumulate(part, loop, total)
        self._leave(loop)
        for part, total in zip(parts, totals, strict=True):
            finish = self._finish_moments if part.extra == "moments" else self._finish
            finish(part, loop, total)

    def _declare_total(self, part: Expr, loop: Loop) -> str:
        """Name the total, and initialise its accumulator if the loop is tiled."""
        total = self.names.make(f"{part.extra}_{loop.name}")
        if part.extra == "moments":
            for moment in self._moments(total):
                self._start_tile(moment, "0", part, loop)
        else:
            self._start_tile(total, self._identity(part), part, loop)
        return total

    def _start_tile(self, name: str, start: str, part: Expr, loop: Loop) -> None:
        if loop.persistent:
            return
        shape = f"({loop.width}, LANES)" if self.schedule.across else f"(LANES, {loop.width})"
        self.body.line(f"{name} = tl.full({shape}, {start}, {TYPES[accumulator_type(part.dtype)]})")

    def _accumulate(self, part: Expr, loop: Loop, total: str) -> None:
        """Combine a tile into the total; masked iterations count as the identity."""
        value = self._cast(part.args[0], accumulator_type(part.dtype))
        if part.dtype is DType.INT64:
            value = f"{value}.to(tl.int64)"
        value = f"tl.where({loop.live} & live, {value}, {self._identity(part)})"
        if loop.persistent:
            self.body.line(f"{total} = {value}")
        else:
            self._require_helper(part)
            self.body.line(f"{total} = {_COMBINE[str(part.extra)].format(total, value)}")

    def _finish(self, part: Expr, loop: Loop, total: str) -> None:
        """Reduce the accumulator tile to one number per element."""
        fn, call = str(part.extra), "tl.{fn}({0}, {1})"
        if fn == "prod" or (fn != "sum" and part.dtype.is_float):
            helper, call = _FINAL_REDUCTIONS[fn]
            self.helpers[helper] = None
        self._total(total, call.format(total, self._axis, fn=fn))
        self.text[part] = total

    def _total(self, name: str, text: str) -> None:
        self.body.line(f"{name} = {text}{self.column}")

    @property
    def _axis(self) -> int:
        """The axis of a tile along which iterations are."""
        return 0 if self.schedule.across else 1

    def _require_helper(self, part: Expr) -> None:
        if part.extra in _COMBINE_HELPERS:
            self.helpers[_COMBINE_HELPERS[str(part.extra)]] = None

    def _identity(self, part: Expr) -> str:
        if part.extra in ("sum", "prod") or part.dtype.is_float:
            return _IDENTITY[str(part.extra)]
        limits = (0, 1) if part.dtype is DType.BOOL else integer_limits(part.dtype)
        return str(limits[0] if part.extra == "max" else limits[1])

    # ---- scans and sorts ----

    def _text(self, part: Expr) -> str:
        match part.fn:
            case "scan":
                return self._scan(part)
            case "order":
                return self._order(part)
            case _:
                return super()._text(part)

    def _scan(self, part: Expr) -> str:
        loop, value = (
            self.loops[reduced_loop(part)],
            self._cast(part.args[0], accumulator_type(part.dtype)),
        )
        return f"tl.cumsum(tl.where({loop.live} & live, {value}, 0), {self._axis})"

    def _order(self, part: Expr) -> str:
        """Sort values together with iterations, packed into 64 bits."""
        loop, (value, *_) = self.loops[reduced_loop(part)], part.parts()
        floats = value.dtype.is_float
        text = self._cast(value, DType.FP32 if floats else DType.INT32)
        if floats:
            self.helpers["sortable"] = None
            text = f"sortable({text})"
        key = self.names.make("key")
        self.body.line(f"{key} = {'~' * bool(part.extra)}{text}")
        self.body.line(f"{key} = ({key}.to(tl.int64) << 32) | {loop.name}")
        self.body.line(f"{key} = tl.where({loop.live} & live, {key}, 9223372036854775807)")
        return f"(tl.sort({key}, 1) & 4294967295).to(INDEX)"

    # ---- moments ----

    def _moments(self, total: str) -> tuple[str, str, str]:
        return f"{total}_count", f"{total}_mean", f"{total}_squares"

    def _accumulate_moments(self, part: Expr, loop: Loop, total: str) -> None:
        """Accumulate a tile into counts, means and squared deviations, per tile column.

        Reference: Welford, Note on a method for calculating corrected sums, 1962.
        """
        count, mean, squares = self._moments(total)
        value, line = self._value(part.args[0]), self.body.line
        guard = [self._guard(arg) for arg in part.args[2:]]
        line(f"here = {' & '.join([loop.live, 'live', *guard])}")
        if loop.persistent:
            line(f"{count} = here.to({TYPES[part.dtype]})")
            line(f"{mean} = tl.where(here, {value}, 0)")
            return
        line(f"{count} += here.to({TYPES[part.dtype]})")
        line(f"apart = tl.where(here, {value} - {mean}, 0)")
        line(f"{mean} += apart / tl.maximum({count}, 1)")
        line(f"{squares} += apart * tl.where(here, {value} - {mean}, 0)")

    def _finish_moments(self, part: Expr, loop: Loop, total: str) -> None:
        """Reduce tiles of counts, means and squared deviations to one of each per element.

        Reference: Chan, Golub, LeVeque, Algorithms for computing the sample variance, 1983.
        """
        count, mean, squares = names = self._moments(total)
        line, axis = self.body.line, self._axis
        line(f"whole = tl.sum({count}, {axis}){self.column}")
        line(f"middle = tl.sum({mean} * {count}, {axis}){self.column} / tl.maximum(whole, 1)")
        line(f"apart = {mean} - middle")
        before = "" if loop.persistent else f"{squares} + "
        line(f"{squares} = tl.sum({before}{count} * apart * apart, {axis}){self.column}")
        line(f"{count}, {mean} = whole, middle")
        self.text[part] = total
        self.moments[part] = names

    # ---- loops ----

    def _loop_end(self, index: int) -> str:
        """The end of a loop, which may differ between elements."""
        ends = self.kernel.ends
        return self._value(ends[index]) if index in ends else self._size(self.loops[index].size)

    def _iteration_indices(self, index: int, start: str = "") -> None:
        """Define the iteration indices of a tile from `start`, and their mask."""
        loop = self.loops[index]
        part = self.kernel.split_size
        first = "" if part is None else "first + "
        own = f"tl.arange(0, {loop.width}){self.row}"
        self.body.line(f"{loop.name} = {first}{start}{own}")
        live = f"{loop.name} < {self._loop_end(index)}"
        if part is not None and not is_multiple(part, loop.width):
            live = f"({live}) & ({loop.name} < first + {self._size(part)})"
        self.body.line(f"{loop.live} = {live}")

    def _enter(self, loop: Loop, index: int) -> None:
        if loop.persistent:
            return
        self.loop_pass += 1
        stop = self._size(self.kernel.trip_count(index))
        if index in self.kernel.ends:
            stop = f"tl.max(tl.where(live, {self._loop_end(index)}, 0))"
        self.body.line(f"for start in range(0, {stop}, {loop.width}):")
        self.body.depth += 1
        self._iteration_indices(index, "start + ")
        self.open_loops = frozenset({index})

    def _leave(self, loop: Loop) -> None:
        """End a loop; variables defined in it are unknown after it."""
        if loop.persistent:
            return
        self.body.depth -= 1
        self.text = {part: text for part, text in self.text.items() if not self._inside(part)}
        self.open_loops = frozenset()

    def _inside(self, part: Expr) -> bool:
        return any(not self.loops[index].persistent for index in self.loop_deps[part])
