"""Kernel builder of ops: implements the protocol `KernelBuilder` for `kernel` bodies.

One body may emit several kernels consecutively: each call of `grid` starts another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from compiler.codegen.kernel.body import KernelBody, Ref
from compiler.codegen.kernel.epilogues import FusedEpilogue
from compiler.codegen.kernel.host_code import HostArrays, HostCode
from compiler.codegen.kernel.module_writer import KernelModuleWriter
from compiler.codegen.kernel.random import keys_from
from compiler.codegen.kernel.scalar_kernels import KernelOperand, ScalarKernels
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.reference_calls import ShapeOf
from compiler.codegen.trace import Expr, Term
from compiler.ir.dims import Dim, Size
from compiler.ir.opdef.slots import Share
from compiler.ir.types import DType
from compiler.plan import PlannedOp, PlannedValue


class OpKernels(ScalarKernels):
    """Builds the kernels of one op of a step, whose operands are values of a module."""

    def __init__(
        self,
        writer: KernelModuleWriter,
        op: PlannedOp,
        name: str = "",
        epilogue: FusedEpilogue | None = None,
    ) -> None:
        super().__init__(name or op.kind)
        self._writer = writer
        self._host = HostCode(writer)
        self._op = op
        self._epilogue = epilogue
        self._fp32_sums: dict[str, tuple[NumpyOperand, NumpyOperand]] = {}

    @property
    def in_order(self) -> bool:
        """True if sums must be computed in the same order in every run."""
        return self._writer.in_order

    # ---- what targets decide ----

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

    def line(self, text: str) -> None:
        """Write one line of the step, after the kernels so far."""
        self.flush()
        self._writer.line(text)

    def finish(self) -> None:
        """Emit the current kernel, and round bfloat16 sums accumulated in float32."""
        self.flush()
        for out, total in self._fp32_sums.values():
            self._launch_copy(total, out)

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
