"""The kernel builder of the Triton target: emits the kernels of an op as Triton source."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from compiler.codegen.kernel.analysis import accumulator_type
from compiler.codegen.kernel.attention import described
from compiler.codegen.kernel.body import KernelBody, MatmulBody
from compiler.codegen.kernel.builder import OpKernels
from compiler.codegen.kernel.epilogues import FusedEpilogue
from compiler.codegen.kernel.host_code import HostArrays
from compiler.codegen.kernel.random import keys_from
from compiler.codegen.kernel.scalar_kernels import KernelOperand
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import Expr
from compiler.codegen.triton.attention.backward import emit_gradients, reads_means
from compiler.codegen.triton.attention.forward import emit_attention
from compiler.codegen.triton.attention.tiles import MOST_COLUMNS, WIDE_TILE
from compiler.codegen.triton.emit import emit
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.triton.module_writer import TritonModuleWriter
from compiler.codegen.triton.products import emit_tile_function, emit_tiles
from compiler.codegen.triton.row_sums import emit_row_sums, row_programs
from compiler.codegen.triton.step_loops import (
    StepLoop,
    common_rows,
    emit_step_loop,
    most_of,
    step_table,
)
from compiler.codegen.triton.tiling.product_tiles import ProductTiling
from compiler.codegen.triton.tiling.split_reductions import split_kernel
from compiler.codegen.triton.tiling.tiles import BF16X6
from compiler.ir.attention import AttentionForm, ordered
from compiler.ir.dims import Dim, Size
from compiler.ir.region import WHOLE
from compiler.ir.types import HALVES, DType, TensorType
from compiler.plan import PlannedOp, StorageKind


class TritonKernelBuilder(OpKernels):
    """Emits the kernels of one op into a step; `launch` takes the source of each."""

    def __init__(
        self, writer: TritonModuleWriter, op: PlannedOp, comment: Sequence[str],
        launch: Callable[[KernelSource], None], name: str = "",
        epilogue: FusedEpilogue | None = None,
    ) -> None:  # fmt: skip
        super().__init__(writer, op, name, epilogue)
        self._comment = comment
        self._launch = launch
        self._input_precision = writer.precision
        self._device = writer.device
        self._gpu = writer.gpu
        self._loop: list[KernelBody] | None = None

    @property
    def on_gpu(self) -> bool:
        """True: adjacent elements are computed by adjacent threads."""
        return True

    def attention(self, form: AttentionForm, operands: Mapping[str, KernelOperand]) -> bool:
        """Emit attention in half precision, or in float32 that is multiplied by parts, of widths
        that a program's registers have room for.
        """
        if not _is_narrow(form, operands, self._most_columns(operands["q"].type.dtype)):
            return False
        self.flush()
        arrays = self._arrays(form, operands)
        names, comment = self._writer.names, self._comment
        spec = described(form, operands)
        self._launch(emit_attention(spec, arrays, self._name, names, comment))
        return True

    def _most_columns(self, dtype: DType) -> int:
        """The columns of the widest attention that has a kernel, 0 if there is none of the type."""
        if dtype is DType.FP32:
            by_parts = BF16X6 in self._device.float32 and self._input_precision == "ieee"
            return WIDE_TILE.value if by_parts else 0
        return MOST_COLUMNS.value if dtype in HALVES else 0

    def attention_gradient(
        self, form: AttentionForm, operands: Mapping[str, KernelOperand]
    ) -> bool:
        """Emit the gradients of attention in half precision, from what forward saved of rows."""
        is_half = operands["q"].type.dtype in HALVES and "statistics" in operands
        if not is_half or not _is_narrow(form, operands, MOST_COLUMNS.value):
            return False
        self.flush()
        arrays, spec = self._arrays(form, operands), described(form, operands)
        if reads_means(spec, self._gpu):
            arrays["means"] = self._allocate((*spec.stack, spec.queries), DType.FP32)
        names, comment = self._writer.names, self._comment
        for kernel in emit_gradients(spec, arrays, self._name, names, self._gpu, comment):
            self._launch(kernel)
        return True

    def _arrays(
        self, form: AttentionForm, operands: Mapping[str, KernelOperand]
    ) -> dict[str, NumpyOperand]:
        """The arrays of an attention's operands, that of RNG keys from its own key on."""
        arrays = {name: operand.operand for name, operand in operands.items()}
        if form.dropout:
            arrays["rng"] = keys_from(arrays["rng"], form.place)
        return arrays

    @contextmanager
    def for_each(self, values: HostArrays, *hints: str) -> Generator[tuple[Dim, ...]]:
        """Repeat the kernels written inside for each tuple of integers, in one launch if all are
        products; `hints` name the integers.
        """
        self.flush()
        self.allocate_operands()
        numbers = self._host.loop_sizes(hints)
        self._loop = kernels = list[KernelBody]()
        yield numbers
        self.flush()
        self._loop = None
        if not self._emit_steps(values, numbers, kernels):
            with self._host.loop(values, numbers):
                for kernel in kernels:
                    self._emit(kernel)

    def _emit_steps(
        self, values: HostArrays, numbers: Sequence[Dim], kernels: Sequence[KernelBody]
    ) -> bool:
        """Emit the kernel of all steps; False if some kernels are no plain products."""
        products = [kernel for kernel in kernels if isinstance(kernel, MatmulBody)]
        if len(products) < len(kernels) or not all(len(kernel.shape) == 2 for kernel in products):
            return False
        names = self._writer.names
        functions = [emit_tile_function(kernel, names, self._device) for kernel in products]
        rows = common_rows(functions, numbers)
        if rows is None:
            return False
        steps = self.as_size(values.length(), "steps")
        most = self.as_size(self.on_host(most_of, values, numbers.index(rows)), "most")
        table = self.to_device(
            self.on_host(step_table, values, len(numbers)), (steps, len(numbers))
        )
        text = "take(None, 'int32', (1,)).zero_()"
        arrived = self._writer.keep(text, True, StorageKind.LOCAL, "arrived")
        loop = StepLoop(numbers, rows, steps, most, str(table), arrived)
        self._launch(emit_step_loop(functions, loop, names.make(self._name), self._comment))
        return True

    def rows_and_sums(
        self, table: tuple[Size, Size], row: Callable[[Expr, Expr], None],
        values: Callable[[Expr, Expr], Sequence[Expr]], outs: Sequence[KernelOperand],
    ) -> None:  # fmt: skip
        """Emit a kernel for rows that also sums over them, if a row fits into a tile."""
        (i,) = self.grid(table[0])
        j = self.loop(table[1])
        row(i, j)
        programs, rows = row_programs(self.current) if outs else (0, 0)
        if not programs:
            self._current = None
            super().rows_and_sums(table, row, values, outs)
            return
        self.current.programs = programs
        sums = [self.current.row_sum(value) for value in values(i, j)]
        partials = [
            self.scratch((programs, table[1]), accumulator_type(each.dtype)) for each in sums
        ]
        for partial, value in zip(partials, sums, strict=True):
            self.store(partial, (self.current.program(), j), value)
        (j,) = self.grid(table[1])
        part = self.loop(programs)
        is_fixed = isinstance(table[0], int)
        launched = None if is_fixed else self.less(part * rows, self.size(table[0]))
        for out, partial in zip(outs, partials, strict=True):
            self.store(out, (j,), self.sum(partial.at(part, j, where=launched), part))

    def _emit(self, kernel: KernelBody) -> None:
        if self._loop is not None:
            self._loop.append(kernel)
            return
        names, comment = self._writer.names, self._comment
        if isinstance(kernel, MatmulBody):
            self._launch(emit_tiles(kernel, names, comment, self._device))
            return
        if kernel.programs:
            self._launch(emit_row_sums(kernel, names, comment))
            return
        for part in split_kernel(kernel, self._allocate):
            self._launch(emit(part, names, comment))

    def _split_count(self, tiles: MatmulBody, total: Expr) -> int:
        return ProductTiling(tiles, [total], self._device, self._input_precision).split_count()

    @property
    def _joins_column_sums(self) -> bool:
        return True

    def _precision(self) -> str:
        return self._input_precision

    def _upload(
        self, value: Any, shape: Sequence[Size], dtype: DType,
        numbers: tuple[int, Size] | None = None,
    ) -> NumpyOperand:  # fmt: skip
        """Copy a host array to the device; its `numbers` are not compared with their range."""
        self.flush()
        writer, text = self._writer, f"uploaded(take, {self._host.sized(value, shape)})"
        type = TensorType(dtype, tuple(shape))
        if self._host.is_step_invariant(value):
            name = writer.keep(text, self._host.is_bind_time(value), StorageKind.FEED, "there")
        else:
            name = self._host.assign(text, "there")
        return NumpyOperand(writer, name, type, False, (StorageKind.LOCAL, name, WHOLE))

    def _allocate(self, shape: Sequence[Size], dtype: DType) -> NumpyOperand:
        return self._writer.scratch(shape, dtype, on_device=True)


def _is_narrow(form: AttentionForm, operands: Mapping[str, KernelOperand], most: int) -> bool:
    """Whether queries and values of an attention have at most so many columns."""
    q, v = operands["q"], operands["v"]
    widths = ordered(q.shape, form.layout.q)[-1], ordered(v.shape, form.layout.v)[-1]
    return all(isinstance(size, int) and size <= most for size in widths)
