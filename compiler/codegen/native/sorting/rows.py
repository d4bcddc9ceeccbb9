"""Kernels of the first values of rows in order, and their indices: all of a row, or a few.

All keys of a short row are sorted. Of a longer one a buffer keeps the first
`count` keys and as many candidates: values that precede the last of these. A full buffer is sorted,
so that the time is that of `size` comparisons and, at worst, of sorting `size` keys in small parts.
"""

from __future__ import annotations

from compiler.codegen.native.images.integers import Integers
from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import (
    I1,
    I32,
    I64,
    POINTER,
    VOID,
    Index,
    LoopBody,
    Value,
    constant,
)
from compiler.codegen.native.loops.types import stored_type
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.contraction import Call, Steps
from compiler.codegen.native.sorting.algorithms import sort_function
from compiler.codegen.native.sorting.keys import WORD, SortKeys, store
from compiler.ir.dims import Dim, Size, product
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass
from compiler.support.thresholds import threshold

MAX_STACK = threshold(
    "sorted_row", 1 << 14, "words", "keys that need more are sorted outside of the stack", small=48
)

BUFFERS = 4
"""How many rows whose keys are not on the stack are sorted at the same time."""

SORTED, COMPARED = 16, 4
"""Operations for each value of a row that is sorted, or compared with the last one selected."""


@dataclass(frozen=True)
class Rows:
    """The first `count` values along the middle of three axes, by their order.

    `shape` is that of X; `largest` is true if the largest values are first.
    """

    machine: Machine
    dtype: DType
    shape: tuple[Size, Size, Size]
    count: Size
    largest: bool

    @property
    def dims(self) -> list[Dim]:
        """The sizes that the kernel's arguments have."""
        sizes = (*self.shape, self.count)
        return list(dict.fromkeys(size for size in sizes if isinstance(size, Dim)))

    @property
    def keys(self) -> SortKeys:
        """The keys of the values."""
        return SortKeys(self.dtype, self.largest)

    @property
    def is_whole(self) -> bool:
        """True if all keys of a row are sorted at once: it is not longer than two counts."""
        size, count = self.shape[1], self.count
        if isinstance(size, int) and isinstance(count, int):
            return size <= 2 * count
        return size == count

    @property
    def capacity(self) -> Size:
        """The number of keys of a buffer."""
        return self.shape[1] if self.is_whole else 2 * self.count

    @property
    def words(self) -> Size:
        """The number of words of a buffer."""
        return self.capacity * self.keys.words

    @property
    def is_on_stack(self) -> bool:
        """True if buffers fit into the stack's memory, so that each row is a unit of work."""
        return 0 < self.stack_words <= MAX_STACK.value

    @property
    def stack_words(self) -> int:
        """The number of words of a buffer on the stack."""
        return max(self.words, 1) if isinstance(self.words, int) else 0

    @property
    def number(self) -> Size:
        """The number of rows."""
        return product([self.shape[0], self.shape[2]])

    @property
    def units(self) -> Size:
        """The number of units of work: of rows, or of buffers that are not on the stack."""
        if self.is_on_stack:
            return self.number
        return min(self.number, BUFFERS) if isinstance(self.number, int) else BUFFERS


def first_values(rows: Rows) -> Steps:
    """Return the kernel of arrays "X", "Out" and "Indices", and perhaps "keys", of 64 bits."""
    kernel = _RowsKernel(rows).kernel()
    names = ("X", "Out", "Indices")
    if rows.is_on_stack:
        return Steps((Call(kernel, (*names, *rows.dims)),))
    scratch = {"keys": 2 * rows.units * rows.words}
    return Steps((Call(kernel, (*names, "keys", *rows.dims)),), scratch=scratch)


class _RowsKernel:
    """The kernel under construction."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.keys = rows, rows.keys
        arrays = 3 if rows.is_on_stack else 4
        types = [POINTER] * arrays + [I64] * len(rows.dims)
        self.f, values, self.first, self.last = entry("first_values", types)
        self.x, self.out, self.indices = values[:3]
        self.n = Integers(self.f, dict(zip(rows.dims, values[arrays:], strict=True)))
        self.size, self.inner = (self.n.of(size) for size in rows.shape[1:])
        self.count, self.capacity = self.n.of(rows.count), self._capacity()
        if rows.is_on_stack:
            text = f"alloca [{rows.stack_words} x i64], align 64"
            self.buffer, self.room = (self.f.value(POINTER, text) for _ in range(2))
        else:
            self.memory = values[3]

    def _capacity(self) -> Index:
        if self.rows.is_whole:
            return self.size
        return self.n.mul(self.n.of(self.rows.count), 2)

    def kernel(self) -> NativeKernel:
        """The finished kernel."""
        rows = self.rows
        self.f.loop_if_any(self.first, self.last, 1, self._unit)
        outputs = product([rows.number, rows.count])
        elements = product(rows.shape)
        nbytes = (elements + outputs) * rows.dtype.itemsize + outputs * WORD
        functions = [self.f, sort_function(self.keys.words)]
        operations = elements * (SORTED if rows.is_whole else COMPARED)
        return NativeKernel(functions, rows.units, operations, nbytes)

    def _unit(self, number: Value, _: list[Value]) -> list[Value]:
        """Emit a unit: a row, or every row of a buffer's."""
        if self.rows.is_on_stack:
            self._row(number)
            return []
        words = self.n.mul(self.capacity, self.keys.words)
        self.buffer = self.f.address(self.memory, self.n.mul(number, words, 2), WORD)
        self.room = self.f.address(self.buffer, words, WORD)

        def row(number: Value, _: list[Value]) -> list[Value]:
            self._row(number)
            return []

        count = self.n.mul(self.n.of(self.rows.shape[0]), self.inner)
        self.f.loop_if_any(number, count, self.n.of(self.rows.units), row)
        return []

    def _row(self, number: Value) -> None:
        n = self.n
        outer, inner = n.divmod(number, self.inner)
        start = n.add(n.mul(outer, self.size, self.inner), inner)
        target = n.add(n.mul(outer, self.count, self.inner), inner)
        filled = n.min(self.size, self.capacity)
        self._fill(start, filled)
        if not self.rows.is_whole:
            filled = self._select(start, filled)
        self._sort(filled)
        self._write(start, target, n.min(filled, self.count))

    # ---- keys ----

    def _number(self, start: Index, index: Index, lanes: int = 0) -> Value:
        """The number of a value of a row, or of consecutive ones."""
        type = stored_type(self.rows.dtype)
        address = self.f.address(self.x, self._place(start, index), type.nbytes)
        return self.keys.number(self.f, self.f.load(type.vector(lanes), address))

    def _place(self, start: Index, index: Index) -> Index:
        """The place of a row's value in X, in elements."""
        return self.n.add(start, self.n.mul(index, self.inner))

    def _fill(self, start: Index, count: Index) -> None:
        """Fill the buffer with the keys of the row's first values."""

        def one(index: Value, _: list[Value]) -> list[Value]:
            key = self.keys.key(self.f, self._number(start, index), index)
            store(self.f, key, self.buffer, index)
            return []

        self.f.loop_if_any(0, count, 1, one)

    def _sort(self, count: Index) -> None:
        """Sort the buffer's first keys, if there are any."""
        arguments = (self.buffer, self.room, self.f.index(count))
        some = self.f.compare("sgt", self.f.index(count), constant(I64, 0))
        self.f.when(some, lambda: self.f.call("sort_keys", VOID, *arguments))

    # ---- candidates ----

    def _select(self, start: Index, filled: Index) -> Index:
        """Put the first values of a long row into the full buffer; returns its number of keys."""
        f = self.f

        def select() -> list[Value]:
            kept = self._sorted_limit()
            return f.loop(self.capacity, self.size, self._step, self._block(start), kept)[:1]

        longer = f.compare("sgt", f.index(self.size), f.index(self.capacity))
        (kept,) = f.choose(longer, select, lambda: [f.index(filled)])
        return kept

    def _sorted_limit(self) -> list[Value]:
        """Sort the full buffer; returns how many keys are kept, and the number of the last."""
        n = self.n
        self._sort(self.capacity)
        limit = self.keys.loaded_number(self.f, self.buffer, n.sub(self.count, 1))
        return [n.value(self.count), limit]

    @property
    def _step(self) -> int:
        """Values that are compared at once: lanes if they are contiguous."""
        bits = I64 if self.keys.words > 1 else I32
        return self.rows.machine.lanes(bits)

    def _block(self, start: Index) -> LoopBody:
        """Emits the comparison of some values, and of each if one of them is a candidate."""

        def block(first: Value, kept: list[Value]) -> list[Value]:
            stop = self.n.min(self.n.add(first, self._step), self.size)
            each = self._each(start)
            if self.inner != 1:
                return self.f.loop(first, stop, 1, each, kept)
            some = self._has_candidate(start, first, kept[1])
            return self.f.choose(
                some, lambda: self.f.loop(first, stop, 1, each, kept), lambda: kept
            )

        return block

    def _has_candidate(self, start: Index, first: Value, limit: Value) -> Value:
        """Whether one of consecutive values may be a candidate: some of the last ones always."""
        f, step = self.f, self._step

        def compared() -> list[Value]:
            numbers = self._number(start, first, step)
            precede = f.compare("ult", numbers, f.splat(limit, step))
            return [f.reduce("or", precede)]

        whole = f.compare("sle", f.add(first, constant(I64, step)), f.index(self.size))
        return f.choose(whole, compared, lambda: [constant(I1, 1)])[0]

    def _each(self, start: Index) -> LoopBody:
        """Emits the comparison of a value, which may be put into the buffer."""
        f = self.f

        def each(index: Value, kept: list[Value]) -> list[Value]:
            number = self._number(start, index)
            precedes = f.compare("ult", number, kept[1])
            return f.choose(precedes, lambda: self._put(number, index, kept), lambda: kept)

        return each

    def _put(self, number: Value, index: Value, kept: list[Value]) -> list[Value]:
        """Put a key into the buffer; if it is full then, keep the first half of it sorted."""
        f, (count, limit) = self.f, kept
        store(f, self.keys.key(f, number, index), self.buffer, count)
        count = f.add(count, constant(I64, 1))
        full = f.compare("eq", count, f.index(self.capacity))
        return f.choose(full, self._sorted_limit, lambda: [count, limit])

    # ---- results ----

    def _write(self, start: Index, target: Index, count: Index) -> None:
        """Write the first values of the buffer, and their indices."""
        f, type = self.f, stored_type(self.rows.dtype)

        def one(place: Value, _: list[Value]) -> list[Value]:
            index = self.keys.loaded_index(f, self.buffer, place)
            value = f.load(type, f.address(self.x, self._place(start, index), type.nbytes))
            out = self.n.add(target, self.n.mul(place, self.inner))
            f.store(value, f.address(self.out, out, type.nbytes))
            f.store(index, f.address(self.indices, out, I64.nbytes))
            return []

        f.loop_if_any(0, count, 1, one)
