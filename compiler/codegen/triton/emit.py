"""Kernels as source: lanes become blocks with masks, loops become tiles or turns over tiles.

A kernel without loops is one row of `BLOCK` lanes a program. With loops, lanes stand in a column
and the turns of a loop in a row beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.codegen.triton.cost import Traffic, traffic_of
from compiler.codegen.triton.expressions import levels_of, programs, roots_of, size_type
from compiler.codegen.triton.kernel_ir import KernelBody, Store
from compiler.codegen.triton.numpy_names import SIZE
from compiler.codegen.triton.reductions import Reductions
from compiler.codegen.triton.tiling.schedules import WARPS
from compiler.codegen.writer import Names, comment_lines
from compiler.ir.dims import product


@dataclass
class Written:
    """A kernel's text, the helpers it needs, and the call that launches it.

    `types` are those of its parameters, as Triton's compiler takes them, with ":16" behind those
    that are addresses or numbers divisible by 16; `constants` the values of the parameters that are
    known when it is compiled, but for INDEX; `options` what its launch tells the compiler, such as
    `num_warps`, where that is not as usual. `traffic` is what it moves.
    """

    name: str
    lines: list[str]
    helpers: list[str]
    launch: str
    types: dict[str, str]
    constants: dict[str, int]
    traffic: Traffic
    options: dict[str, int] = field(default_factory=dict[str, int])


def emit(lanes: KernelBody, names: Names, comment: Sequence[str] = ()) -> Written:
    """The source of a kernel, and its launch with names and sizes of the step's scope."""
    return Emitter(lanes, names.make(lanes.name), comment).emit()


@dataclass
class Emitter(Reductions):
    """Writes one kernel, line by line."""

    # ---- the whole ----

    def emit(self) -> Written:
        """KernelBody, then reductions level by level, then what is stored."""
        self._head()
        for level in levels_of(self.lanes.stores):
            self._reduce(level)
        self._store_all()
        return self._written({"LANES": self.form.lanes}, self._options())

    def _written(self, constants: dict[str, int], options: dict[str, int]) -> Written:
        """The kernel as it stands."""
        traffic = traffic_of(self.lanes, self.loads, self.reach)
        return Written(
            self.name, self._lines(), list(self.helpers), self._launch(), self._types(), constants,
            traffic, options,
        )  # fmt: skip

    def _options(self) -> dict[str, int]:
        """What the launch tells the compiler."""
        return {} if self.form.warps == WARPS else {"num_warps": self.form.warps}

    def _types(self) -> dict[str, str]:
        """What each parameter is."""
        pointers = {name: self.kinds[operand] for operand, name in self.pointers.items()}
        return pointers | {name: size_type(size) for size, name in self.sizes.items()}

    def _head(self) -> None:
        side = self.column if self.loops else ""
        self.body.line(f"lane = tl.program_id(0).to(INDEX) * LANES + tl.arange(0, LANES){side}")
        self.body.line(f"live = lane < {self._size(product(self.lanes.shape))}")
        if self.lanes.part is not None:
            place = self._value(self.lanes.indices[0])
            self.body.line(f"first = {place} * {self._size(self.lanes.part)}")
        for index in (n for n, loop in enumerate(self.loops) if loop.whole):
            self._turns(index)

    def _lines(self) -> list[str]:
        parameters = [*self.pointers.values(), *self.sizes.values()]
        parameters += [f"{each}: tl.constexpr" for each in (*self._constants(), "INDEX")]
        head = [self._decorator(), f"def {self.name}({', '.join(parameters)}):"]
        return [*head, *comment_lines(self.comment), *self.body.lines]

    def _decorator(self) -> str:
        """What Triton must not look at is said: no other size makes it compile once more."""
        any_number = [name for size, name in self.sizes.items() if size_type(size) == SIZE]
        return f"@triton.jit(do_not_specialize={any_number!r})" if any_number else "@triton.jit"

    def _constants(self) -> list[str]:
        """What is known when the kernel is compiled."""
        return ["LANES"]

    def _launch(self) -> str:
        count = product(self.lanes.shape)
        grid = programs(count, self.form.lanes)
        arguments = [*self.pointers, *map(str, self.sizes), f"LANES={self.form.lanes}"]
        arguments += ["INDEX=INDEX", *(f"{key}={n}" for key, n in self._options().items())]
        return f"{self.name}[({grid},)]({', '.join(arguments)})"

    # ---- stores ----

    def _store_all(self) -> None:
        by_loop: dict[int | None, list[Store]] = {}
        for store in self.lanes.stores:
            found = {i for root in roots_of([store]) for i in self.reach[root]}
            turning = [i for i in sorted(found) if not self.loops[i].whole]
            by_loop.setdefault(turning[0] if turning else None, []).append(store)
        for index, stores in by_loop.items():
            self._store_in(index, stores)

    def _store_in(self, index: int | None, stores: list[Store]) -> None:
        if index is None:
            self._store(stores)
            return
        for root in roots_of(stores):
            self._hoist(root, index)
        self._enter(self.loops[index], index)
        self._store(stores)
        self._leave(self.loops[index])

    def _store(self, stores: list[Store]) -> None:
        """All values before the first store: an output may stand where an input was."""
        ready = [(each, self._cast(each.value, each.operand.type.dtype)) for each in stores]
        for store, value in ready:
            indices = store.indices if store.where is None else (*store.indices, store.where)
            place = self._pointer(store.operand)
            offset = self._offset(store.indices, store.shape)
            mask = self._mask(indices, store.where, extra=store.value)
            call = "atomic_add" if store.adds else "store"
            self.body.line(f"tl.{call}({place} + {offset}, {value}, {mask})")
