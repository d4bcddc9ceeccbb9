"""Emits kernels as Triton source: elements become masked blocks, loops tiles or tiled loops.

A kernel without loops has one block of `LANES` elements per program. With loops, elements are along
axis 0 of a tile and iterations along axis 1, or the other way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler.codegen.kernel.analysis import reduction_levels, store_roots
from compiler.codegen.kernel.body import KernelBody, Store
from compiler.codegen.triton.cost import KernelTraffic, kernel_cost
from compiler.codegen.triton.expressions import program_count, size_type
from compiler.codegen.triton.numpy_names import SIZE
from compiler.codegen.triton.reductions import Reductions
from compiler.codegen.triton.tiling.schedules import WARPS
from compiler.codegen.triton.tiling.strides import guards_vary
from compiler.codegen.writer import Names, comment_lines
from compiler.ir.dims import Dim, Size, is_multiple, product

VECTOR = 16
"""Bytes of the longest vector access, and what Triton knows sizes to be multiples of."""

THREADS = 32
"""Threads of a warp."""


@dataclass(frozen=True)
class Variants:
    """Constants and launch options that depend on a size: those of the first limit that it is in.

    `settings` has one more element than the ascending `limits`, for all larger sizes.
    """

    size: Dim
    limits: tuple[int, ...]
    settings: tuple[Mapping[str, int], ...]

    mark = "$VARIANT"
    """What stands for the settings in a launch."""

    @property
    def choice(self) -> str:
        """The settings as source text.

        >>> Variants(Dim.named("N"), (16,), ({"ROWS": 16}, {"ROWS": 64})).choice
        'dict(ROWS=16) if N <= 16 else dict(ROWS=64)'
        """
        *small, large = map(_dict_text, self.settings)
        pairs = zip(small, self.limits, strict=True)
        return "".join(f"{value} if {self.size} <= {n} else " for value, n in pairs) + large

    def kernels(self, constants: Mapping[str, int]) -> list[tuple[dict[str, int], dict[str, int]]]:
        """The constants and launch options of each variant, the last first."""
        return [
            (
                {**constants, **{key: n for key, n in setting.items() if key in constants}},
                {key: n for key, n in setting.items() if key not in constants},
            )
            for setting in reversed(self.settings)
        ]


def _dict_text(settings: Mapping[str, int]) -> str:
    return f"dict({', '.join(f'{key}={value}' for key, value in settings.items())})"


@dataclass
class KernelSource:
    """A kernel's source, the helpers it needs, and its launch.

    `types` are those of its parameters in Triton's notation, with ":16" after pointers and sizes
    divisible by 16; `constants` the values of its constexpr parameters except INDEX; `options` the
    launch options other than the defaults, such as `num_warps`. `traffic` is its cost. With
    `variants`, binding chooses constants and options by a size, and `launch` has their `mark`.
    """

    name: str
    lines: list[str]
    helpers: list[str]
    launch: str
    types: dict[str, str]
    constants: dict[str, int]
    traffic: KernelTraffic
    options: dict[str, int] = field(default_factory=dict[str, int])
    variants: Variants | None = None


def emit(kernel: KernelBody, names: Names, comment: Sequence[str] = ()) -> KernelSource:
    """Emit the source of a kernel, and its launch with names and sizes of the step's scope."""
    return Emitter(kernel, names.make(kernel.name), comment).emit()


@dataclass
class Emitter(Reductions):
    """Emits one kernel, line by line."""

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
            if store.atomic:  # a sum orders no other memory, so it needs no fence
                self.body.line(f'tl.atomic_add({place} + {offset}, {value}, {mask}, sem="relaxed")')
            else:
                self.body.line(f"tl.store({place} + {offset}, {value}, {mask})")

    def _store_offset(self, store: Store, mask: str) -> str:
        """The offset of a store, which is in order of threads if its mask breaks vectors."""
        offset = self._offset(store.indices, store.shape)
        count = product(self.kernel.shape)
        has_vectors = self.schedule.elements > THREADS * self.schedule.warps
        if not self.loops or mask != "live" or not has_vectors or not self._breaks_vectors(count):
            return offset
        return f"tl.max_contiguous({offset}, [1, 1])"
