"""Kernel builder of ops: implements the protocol `KernelBuilder` for `kernel` bodies.

One body may emit several kernels consecutively: each call of `grid` starts another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from compiler.codegen.kernel.body import KernelBody, MatmulBody, Ref, as_tuple
from compiler.codegen.kernel.epilogues import FusedEpilogue
from compiler.codegen.kernel.host_code import HostArrays, HostCode
from compiler.codegen.kernel.module_writer import KernelModuleWriter
from compiler.codegen.kernel.random import keys_from
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.reference_calls import ShapeOf
from compiler.codegen.trace import Expr, Term
from compiler.errors import CompileError
from compiler.ir.dims import Dim, Size
from compiler.ir.opdef.kernel_builder import Lengths, SpecialisedKernels
from compiler.ir.opdef.slots import Share
from compiler.ir.types import DType, Shape, TensorType
from compiler.plan import PlannedOp, PlannedValue

Factors: TypeAlias = Callable[..., "tuple[Expr, Expr]"]
"""Returns the factors of products, for batch indices, a row, a column, and the K index of each."""

StoreSum: TypeAlias = Callable[..., None]
"""Stores a sum of products, for batch indices, a row, a column, the sum and a condition."""


class KernelOperand:
    """A device value while an op's body runs; its elements are loaded in the current kernel.

    It is allocated on first use, when the step knows its size.
    """

    def __init__(
        self, kernels: OpKernels, place: Callable[[], NumpyOperand], type: TensorType
    ) -> None:
        self.kernels = kernels
        self._place = place
        self.type = type

    @property
    def operand(self) -> NumpyOperand:
        """The value by its name."""
        return self._place()

    @property
    def shape(self) -> Shape:
        """The shape it is viewed in."""
        return self.type.shape

    def __str__(self) -> str:
        return self.operand.name

    def reshaped(self, shape: Sequence[Size]) -> KernelOperand:
        """A view of the same elements in another shape."""
        return KernelOperand(self.kernels, self._place, self.type.with_shape(shape))

    def __getitem__(self, indices: Any) -> Expr:
        return self.at(*as_tuple(indices))

    def at(self, *indices: Term, where: Term | None = None, other: float = 0) -> Expr:
        """Load the element at these indices; `other`, without a load, if `where` is false."""
        return self.ref().at(*indices, where=where, other=other)

    def ref(self) -> Ref:
        """The operand in the current kernel."""
        return Ref(self.kernels.current, self.operand, self.shape)


class OpKernels(SpecialisedKernels[KernelOperand], ABC):
    """Builds the kernels of one op; a target says how each is emitted into the step."""

    def __init__(
        self,
        writer: KernelModuleWriter,
        op: PlannedOp,
        name: str = "",
        epilogue: FusedEpilogue | None = None,
    ) -> None:
        self._writer = writer
        self._host = HostCode(writer)
        self._op = op
        self._name = name or op.kind
        self._epilogue = epilogue
        self._current: KernelBody | None = None
        self._fp32_sums: dict[str, tuple[NumpyOperand, NumpyOperand]] = {}

    @property
    def in_order(self) -> bool:
        """True if sums must be computed in the same order in every run."""
        return self._writer.in_order

    # ---- what targets decide ----

    @property
    def on_gpu(self) -> bool:
        """True if adjacent elements are computed by adjacent threads, which share sectors."""
        return False

    @abstractmethod
    def _emit(self, kernel: KernelBody) -> None:
        """Emit a kernel into the step."""

    @abstractmethod
    def _split_count(self, tiles: MatmulBody, total: Expr) -> int:
        """The number of parts that the K range of an unsplit product is split into; 1 for none."""

    @property
    def _joins_column_sums(self) -> bool:
        """True if the kernel of a product also sums the columns of its right factor."""
        return False

    def _precision(self) -> str:
        """The `input_precision` of float32 products."""
        return "ieee"

    @abstractmethod
    def _upload(
        self, value: Any, shape: Sequence[Size], dtype: DType,
        numbers: tuple[int, Size] | None = None,
    ) -> NumpyOperand:  # fmt: skip
        """Copy a host array, all of whose `numbers` are in a range, to the device."""

    def expect_size(self, what: str, size: Size, expected: Size) -> None:
        """Require a size to be another one, which inference took for equal, when it is known."""
        self._writer.expect_size(what, size, expected)

    # ---- operands ----

    def operands(self) -> dict[str, Any]:
        """The operands of each slot of the op."""
        slots = {**self._op.inputs, **self._op.outputs}
        return {slot: self._slot_operands(slot, values) for slot, values in slots.items()}

    def _slot_operands(self, slot: str, values: Sequence[PlannedValue]) -> Any:
        declared = self._op.defn.slots[slot]
        if declared.on_host:
            return declared.hold([self._writer.operand(v) for v in values])
        operands = [ShapeOf(v) if declared.shape_only else self._operand(v) for v in values]
        return declared.hold(operands)

    def _operand(self, value: PlannedValue) -> KernelOperand:
        return KernelOperand(self, partial(self._writer.operand, value), value.type)

    def allocate_operands(self) -> None:
        """Allocate every operand of the op."""
        for slot, values in {**self._op.inputs, **self._op.outputs}.items():
            if not self._op.defn.slots[slot].shape_only:
                for value in values:
                    self._writer.operand(value)

    def scratch(self, shape: Sequence[Size], dtype: DType) -> KernelOperand:
        """Allocate scratch for this op; contents undefined."""
        return self._made(self._allocate(shape, dtype))

    def _allocate(self, shape: Sequence[Size], dtype: DType) -> NumpyOperand:
        return self._writer.scratch(shape, dtype)

    def to_device(
        self, value: Any, shape: Sequence[Size], dtype: DType = DType.INT64, *, low: int = 0,
        below: Size | None = None,
    ) -> KernelOperand:  # fmt: skip
        """Copy a host array to the device: with `below`, indices from `low` up to it."""
        numbers = None if below is None else (low, below)
        return self._made(self._upload(value, shape, dtype, numbers))

    def _made(self, operand: NumpyOperand) -> KernelOperand:
        return KernelOperand(self, lambda: operand, operand.type)

    def aliased(self, a: KernelOperand, b: KernelOperand) -> bool:
        """True if both share the same storage, so that a copy is unnecessary."""
        return self._writer.aliased(a.operand, b.operand)

    def is_view_of(self, part: KernelOperand, whole: KernelOperand, share: Share) -> bool:
        """True if `part` already is the view of `whole` that `share` describes."""
        return self._writer.is_view_of(part.operand, whole.operand, share)

    def key(self, keys: KernelOperand, place: int) -> Expr:
        """Load the key at index `place` of a tensor of keys."""
        return self.current.key(keys_from(keys.operand, place))

    # ---- the host ----

    def on_host(self, function: Callable[..., Any], *arguments: Any, hint: str = "") -> HostArrays:
        """Call a function of arrays and numbers on the host, before the kernels that follow."""
        self.flush()
        return self._host.call(function, arguments, hint)

    def expect_at_most(self, size: Size, limit: Size) -> None:
        """Require a size of the host to be at most another, if the target can check it."""
        self._writer.expect_at_most(size, limit)

    def set_size(self, size: Size, value: Any) -> None:
        """Set a data-dependent size."""
        self._writer.define_size(size, str(value))

    def as_size(self, value: HostArrays, hint: str = "size") -> Dim:
        """Use an integer of the host as a size."""
        return self._host.size(value, hint)

    def write_host(self, out: NumpyOperand, value: Any) -> None:
        """Assign an array to an output on the host."""
        self.flush()
        self._host.write(out, value)

    @contextmanager
    def for_each(self, values: Any, *hints: str) -> Generator[tuple[Dim, ...]]:
        """Repeat the launches written inside for each tuple of integers; `hints` name them."""
        self.flush()
        self.allocate_operands()
        sizes = self._host.loop_sizes(hints)
        with self._host.loop(values, sizes):
            yield sizes
            self.flush()

    # ---- kernels ----

    @property
    def current(self) -> KernelBody:
        """The current kernel; CompileError if none was started."""
        if self._current is None:
            raise CompileError(f"{self._op.kind}: its body loads before it starts a kernel")
        return self._current

    def grid(self, *shape: Size) -> tuple[Expr, ...]:
        """Start a kernel over a shape; returns the indices of its elements."""
        self.flush()
        self._current = KernelBody(self._name, shape)
        return self._current.indices

    def tiles(
        self, stack: Sequence[Size], rows: Size, columns: Size, inner: Size
    ) -> tuple[tuple[Expr, ...], Expr, Expr, Expr, Expr]:
        """Start a matmul kernel over a stack of [rows, columns] matrices, reducing over `inner`.

        Returns the indices in the stack, row and column, and the K index for the left and the right
        factor. `contract` computes the sum.
        """
        tiles = self._begin_tiles(stack, (rows, columns, inner), 1)
        *batch, i, j = tiles.indices
        return tuple(batch), i, j, *tiles.iterations

    def _begin_tiles(
        self, stack: Sequence[Size], sides: tuple[Size, Size, Size], parts: int,
        lengths: Lengths | None = None,
    ) -> MatmulBody:  # fmt: skip
        self.flush()
        tiles = MatmulBody(self._name, stack, sides, parts, self._precision())
        self._current = tiles
        if lengths is not None:
            *batch, _, _ = tiles.indices[parts > 1 :]
            tiles.end_early(lengths.each(batch), lengths.total)
        return tiles

    def contraction(
        self,
        stack: Sequence[Size],
        sides: tuple[Size, Size, Size],
        factors: Factors,
        store: StoreSum,
        column_sums: KernelOperand | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        """Emit kernels for a stack of products; `sides` are rows, columns and the reduced size.

        `factors` returns the left and right factor for batch indices, row, column and the K index
        of each; `store` receives the indices, the sum, and where to store it if not everywhere.
        With split-K, a second kernel combines the partial sums. Without a stack, `column_sums`
        receives the sums over K of the right factor. With `lengths`, matrices sum fewer products
        than the reduced size.
        """
        joined = column_sums if self._joins_column_sums else None
        tiles = self._begin_tiles(stack, sides, 1, lengths)
        *batch, i, j = tiles.indices
        a, b = factors(tuple(batch), i, j, *tiles.iterations)
        total = tiles.contract(a, b)
        parts = self._split_count(tiles, total)
        if parts > 1:
            tiles = self._begin_tiles(stack, sides, parts, lengths)
            self._contract_parts(tiles, factors, store, joined)
        else:
            store(tuple(batch), i, j, total)
            if joined is not None:
                self.store(joined, (j,), tiles.column_sum(b))
        if column_sums is not None and joined is None:
            (j,) = self.grid(sides[1])
            r = self.loop(sides[2])
            self.store(column_sums, (j,), self.sum(factors((), 0, j, r, r)[1], r))

    def _contract_parts(
        self, tiles: MatmulBody, factors: Factors, store: StoreSum,
        column_sums: KernelOperand | None,
    ) -> None:  # fmt: skip
        """Store the sums of each part, those of columns as one more row; then combine them."""
        parts, *stack, rows, columns = tiles.shape
        number, *batch, i, j = tiles.indices
        a, b = factors(tuple(batch), i, j, *tiles.iterations)
        total = tiles.contract(a, b)
        shape = (*stack, rows if column_sums is None else rows + 1, columns)
        partials = self.scratch((parts, *shape), total.dtype)
        self.store(partials, tiles.indices, total)
        if column_sums is not None:
            self.store(partials, (number, tiles.size(rows), j), tiles.column_sum(b))
        *batch, i, j = indices = self.grid(*shape)
        part = self.loop(parts)
        total = self.sum(partials[(part, *indices)], part)
        if column_sums is None:
            store(tuple(batch), i, j, total)
        else:
            last = self.current.size(rows)
            store(tuple(batch), i, j, total, self.less(i, last))
            self.store(column_sums, (j,), total, self.equal(i, last))

    def rows_and_sums(
        self, table: tuple[Size, Size], row: Callable[[Expr, Expr], None],
        values: Callable[[Expr, Expr], Sequence[Expr]], outs: Sequence[KernelOperand],
    ) -> None:  # fmt: skip
        """Emit kernels for sums over the rows of a table, into `outs`, and for each row.

        `values` returns the summands for a row and a column, `row` stores the results of a row
        with a loop over its columns.
        """
        if outs:
            (j,) = self.grid(table[1])
            r = self.loop(table[0])
            for out, value in zip(outs, values(r, j), strict=True):
                self.store(out, (j,), self.sum(value, r))
        (i,) = self.grid(table[0])
        row(i, self.loop(table[1]))

    def line(self, text: str) -> None:
        """Write one line of the step, after the kernels so far."""
        self.flush()
        self._writer.line(text)

    def finish(self) -> None:
        """Emit the current kernel, and round bfloat16 sums accumulated in float32."""
        self.flush()
        for out, total in self._fp32_sums.values():
            self._launch_copy(total, out)

    def flush(self) -> None:
        """Emit the current kernel, if there is one."""
        begun, self._current = self._current, None
        if begun is not None and begun.stores:
            self._emit(begun)

    def matmul(
        self, out: KernelOperand, a: KernelOperand, b: KernelOperand, *,
        transposed: tuple[bool, bool] = (False, False), scale: float = 1.0,
        column_sums: KernelOperand | None = None,
    ) -> None:  # fmt: skip
        """Emit kernels for out = scale * a @ b over stacks of matrices, optionally transposed.

        The stack shape of `out` is the broadcast of those of `a` and `b`. If they are matrices,
        `column_sums`, a vector, receives the sums of the columns of `b` after its transpose.
        """
        *stack, rows, columns = out.shape
        inner = a.shape[-2] if transposed[0] else a.shape[-1]

        def factors(
            batch: tuple[Expr, ...], i: Term, j: Expr, left: Expr, right: Expr
        ) -> tuple[Expr, Expr]:
            x = a[(*_broadcast_indices(a, batch), *((left, i) if transposed[0] else (i, left)))]
            y = b[(*_broadcast_indices(b, batch), *((j, right) if transposed[1] else (right, j)))]
            return x, y

        def store(
            batch: tuple[Expr, ...], i: Expr, j: Expr, total: Expr, where: Expr | None = None
        ) -> None:
            self.store(out, (*batch, i, j), total if scale == 1.0 else total * scale, where)

        self.contraction(stack, (rows, columns, inner), factors, store, column_sums)

    def store(
        self, out: KernelOperand, indices: Sequence[Term], value: Term, where: Term | None = None
    ) -> None:
        """Store a value for every element (and iteration) where `where` holds."""
        if self._epilogue is not None and self._epilogue.replaces_store(out.operand.name):
            self._epilogue.store(self.current, out.shape, indices, value, where)
            return
        is_accumulated = out.operand.name in self._fp32_sums
        target = self._fp32_sum(out) if is_accumulated else out
        self.current.store(target.ref(), indices, value, where)

    def add(
        self, out: KernelOperand, indices: Sequence[Term], value: Term, where: Term | None = None
    ) -> None:
        """Add to an element atomically, in any order.

        bfloat16 sums are accumulated in float32 scratch, since there is no atomic add for them.
        """
        target = self._fp32_sum(out) if out.type.dtype is DType.BF16 else out
        self.current.add(target.ref(), indices, value, where)

    def _fp32_sum(self, out: KernelOperand) -> KernelOperand:
        """The float32 accumulator of an output: initialised from it, and copied back at the end."""
        if out.operand.name not in self._fp32_sums:
            total = self._allocate(out.operand.type.shape, DType.FP32)
            self._fp32_sums[out.operand.name] = out.operand, total
            self._launch_copy(out.operand, total)
        return self._made(self._fp32_sums[out.operand.name][1]).reshaped(out.shape)

    def _launch_copy(self, source: NumpyOperand, target: NumpyOperand) -> None:
        """Launch a copy of all elements before the current kernel."""
        kernel = KernelBody(self._name, (source.type.numel,))
        read = Ref(kernel, source, kernel.shape).at(*kernel.indices)
        kernel.store(Ref(kernel, target, kernel.shape), kernel.indices, read)
        self._emit(kernel)

    def __getattr__(self, name: str) -> Any:
        """Loops, reductions, index arithmetic, and NumPy's functions by name."""
        return getattr(self.current, name)


def _broadcast_indices(factor: KernelOperand, batch: Sequence[Expr]) -> list[Term]:
    """The batch indices of a factor, whose own stack may have fewer axes, or axes of size 1."""
    own = factor.shape[:-2]
    return [
        0 if size == 1 else place
        for size, place in zip(own, batch[len(batch) - len(own) :], strict=True)
    ]
