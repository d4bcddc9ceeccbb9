"""Kernels of an op's body: each call of `grid` starts another, of which a target emits code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from compiler.codegen.kernel.body import KernelBody, MatmulBody, Ref, as_tuple
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import Expr, Term
from compiler.errors import CompileError
from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import Lengths, SpecialisedKernels
from compiler.ir.types import DType, Shape, TensorType

Factors: TypeAlias = Callable[..., "tuple[Expr, Expr]"]
"""Returns the factors of products, for batch indices, a row, a column, and the K index of each."""

StoreSum: TypeAlias = Callable[..., None]
"""Stores a sum of products, for batch indices, a row, a column, the sum and a condition."""


class KernelOperand:
    """A device value while an op's body runs; its elements are loaded in the current kernel.

    It is allocated on first use, when the step knows its size.
    """

    def __init__(
        self, kernels: ScalarKernels, place: Callable[[], NumpyOperand], type: TensorType
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


class ScalarKernels(SpecialisedKernels[KernelOperand], ABC):
    """Starts the kernels that an op's body writes in scalars; a target emits each of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._current: KernelBody | None = None

    # ---- what targets decide ----

    @property
    def on_gpu(self) -> bool:
        """True if adjacent elements are computed by adjacent threads, which share sectors."""
        return False

    @abstractmethod
    def _emit(self, kernel: KernelBody) -> None:
        """Emit a kernel into the step."""

    def _split_count(self, tiles: MatmulBody, total: Expr) -> int:
        """The number of parts that the K range of an unsplit product is split into; 1 for none."""
        return 1

    @abstractmethod
    def scratch(self, shape: Sequence[Size], dtype: DType) -> KernelOperand:
        """Allocate scratch for this op; contents undefined."""

    @property
    def _joins_column_sums(self) -> bool:
        """True if the kernel of a product also sums the columns of its right factor."""
        return False

    def _precision(self) -> str:
        """The `input_precision` of float32 products."""
        return "ieee"

    # ---- kernels ----

    @property
    def current(self) -> KernelBody:
        """The current kernel; CompileError if none was started."""
        if self._current is None:
            raise CompileError(f"{self._name}: its body loads before it starts a kernel")
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
        self.current.store(out.ref(), indices, value, where)

    def add(
        self, out: KernelOperand, indices: Sequence[Term], value: Term, where: Term | None = None
    ) -> None:
        """Add to an element atomically, in any order."""
        self.current.add(out.ref(), indices, value, where)

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
