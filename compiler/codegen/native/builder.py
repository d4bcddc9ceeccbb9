"""The kernel builder of the native target: lowers the kernels of an op, and lists their calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec

from compiler.codegen.kernel.body import KernelBody, MatmulBody
from compiler.codegen.kernel.builder import OpKernels
from compiler.codegen.kernel.epilogues import FusedEpilogue
from compiler.codegen.kernel.scalar_kernels import KernelOperand
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native import image_ops
from compiler.codegen.native.attention.draft import attention_draft, gradient_draft
from compiler.codegen.native.image_ops import ImageKernelBuilder
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.codegen.native.products.contraction import Steps
from compiler.codegen.native.products_of_tiles import product_draft
from compiler.codegen.native.register_epilogues import (
    RegisterEpilogue,
    placed_result,
)
from compiler.codegen.native.separate_products import separate_products
from compiler.codegen.native.sorting.draft import sorted_rows
from compiler.codegen.native.step_draft import StepDraft
from compiler.codegen.trace import Expr
from compiler.ir.attention import AttentionForm
from compiler.ir.dims import Dim, Size
from compiler.ir.region import WHOLE
from compiler.ir.types import HALVES, DType, TensorType
from compiler.ir.windows import ConvGeometry, PoolGeometry
from compiler.plan import PlannedOp, StorageKind

P = ParamSpec("P")


class NativeKernelBuilder(OpKernels):
    """Emits the kernels of one op into a step."""

    def __init__(
        self,
        writer: NativeModuleWriter,
        op: PlannedOp,
        name: str = "",
        epilogue: FusedEpilogue | None = None,
    ) -> None:
        super().__init__(writer, op, name, epilogue)
        self._native = writer
        self.machine = writer.machine
        self.winograd = writer.winograd

    # ---- kernels of whole ops ----

    def convolution(
        self, conv: ConvGeometry, images: KernelOperand, filters: KernelOperand,
        outputs: KernelOperand, bias: KernelOperand | None = None,
    ) -> bool:  # fmt: skip
        """Emit a convolution as products, by channel, or by Winograd's algorithm."""
        return self._written(image_ops.forward, conv, images, filters, outputs, bias)

    def convolution_image_gradient(
        self, conv: ConvGeometry, outputs: KernelOperand, filters: KernelOperand,
        images: KernelOperand, bias: KernelOperand | None = None,
    ) -> bool:  # fmt: skip
        """Emit the gradient of a convolution by its images."""
        return self._written(image_ops.gradient_by_images, conv, outputs, filters, images, bias)

    def convolution_filter_gradient(
        self, conv: ConvGeometry, images: KernelOperand, outputs: KernelOperand,
        filters: KernelOperand,
    ) -> bool:  # fmt: skip
        """Emit the gradient of a convolution by its filters."""
        return self._written(image_ops.gradient_by_filters, conv, images, outputs, filters)

    def max_pooling(
        self, pool: PoolGeometry, images: KernelOperand, outputs: KernelOperand
    ) -> bool:
        """Emit the maximum of each window."""
        return self._written(image_ops.pooling, True, pool, images, outputs)

    def max_pooling_gradient(
        self, pool: PoolGeometry, images: KernelOperand, maxima: KernelOperand,
        outputs: KernelOperand, gradient: KernelOperand,
    ) -> bool:  # fmt: skip
        """Emit the gradient of `max_pooling`."""
        return self._written(image_ops.maximum_gradient, pool, images, maxima, outputs, gradient)

    def mean_pooling(
        self, pool: PoolGeometry, images: KernelOperand, outputs: KernelOperand
    ) -> bool:
        """Emit the mean of each window."""
        return self._written(image_ops.pooling, False, pool, images, outputs)

    def mean_pooling_gradient(
        self, pool: PoolGeometry, outputs: KernelOperand, images: KernelOperand
    ) -> bool:
        """Emit the gradient of `mean_pooling`."""
        return self._written(image_ops.mean_gradient, pool, outputs, images)

    def transposition(
        self, order: Sequence[int], source: KernelOperand, outputs: KernelOperand
    ) -> bool:
        """Emit a transposed copy."""
        return self._written(image_ops.transposition, order, source, outputs)

    def attention(self, form: AttentionForm, operands: Mapping[str, KernelOperand]) -> bool:
        """Emit attention by blocks of queries."""
        self.flush()
        return self._written(attention_draft, form, operands)

    def attention_gradient(
        self, form: AttentionForm, operands: Mapping[str, KernelOperand]
    ) -> bool:
        """Emit the gradients of attention by blocks of queries."""
        self.flush()
        return self._written(gradient_draft, form, operands)

    def sorting(
        self, axis: int, largest: bool, X: KernelOperand, values: KernelOperand,
        indices: KernelOperand,
    ) -> bool:  # fmt: skip
        """Emit the first values along an axis."""
        self.flush()
        sorted_rows(self, axis, largest, X, values, indices).write(self._native)
        return True

    def _written(
        self, draft: Callable[Concatenate[ImageKernelBuilder, P], StepDraft], *args: P.args,
        **kwargs: P.kwargs,
    ) -> bool:  # fmt: skip
        """Write kernels that a function drafts; false if it raises NotLowered."""
        try:
            drafted = draft(self, *args, **kwargs)
        except NotLowered:
            return False
        drafted.write(self._native)
        return True

    def result_epilogue(
        self, out: KernelOperand, bias: KernelOperand | None = None
    ) -> RegisterEpilogue:
        """What follows a result that a specialised kernel computes, and how it is stored."""
        indices = self.grid(*out.shape)
        kernel = self.current
        dtype = out.type.dtype
        result = placed_result(kernel, DType.FP32 if dtype in HALVES else dtype)
        self.store(out, indices, result if bias is None else result + bias[indices[-1]])
        self._current = None
        return RegisterEpilogue(kernel, result, self.machine)

    def is_constant(self, operand: KernelOperand) -> bool:
        """True for state whose values never change."""
        return self._native.is_constant(operand.operand)

    def made(self, make: Callable[..., Steps], *arguments: Hashable, **more: Hashable) -> Steps:
        """What a function returns, which is called once for equal arguments."""
        return self._native.made(make, *arguments, **more)

    def _emit(self, kernel: KernelBody) -> None:
        if isinstance(kernel, MatmulBody):
            _emit_tiles(self._native, kernel)
        else:
            self._native.loops(kernel)

    @contextmanager
    def for_each(self, values: Any, *hints: str) -> Generator[tuple[Dim, ...]]:
        """Repeat the launches written inside for each tuple of integers; `hints` name them."""
        self.flush()
        self.allocate_operands()
        with self._native.loop() as loop, super().for_each(values, *hints) as sizes:
            loop.begin(values, [*map(str, sizes)])
            yield sizes

    def line(self, text: str) -> None:
        """Refuse: lines of kernel bodies are for a device's tensors."""
        raise NotLowered("its kernels need code of a device")

    def _split_count(self, tiles: MatmulBody, total: Expr) -> int:
        return 1

    def _upload(
        self, value: Any, shape: Sequence[Size], dtype: DType,
        numbers: tuple[int, Size] | None = None,
    ) -> NumpyOperand:  # fmt: skip
        """The array itself: kernels read the memory of the host."""
        self.flush()
        form = f"{self._host.sized(value, shape)}, {dtype.numpy.name!r}"
        text = f"np.ascontiguousarray({form})"
        if numbers is not None:
            text = self._checked(value, form, *numbers)
        if self._host.is_step_invariant(value):
            name = self._writer.keep(text, False, StorageKind.FEED, "array")
        else:
            name = self._host.assign(text, "array")
        if numbers is not None:
            self._native.accesses.has_numbers(name, *numbers)
        type = TensorType(dtype, tuple(shape))
        return NumpyOperand(self._writer, name, type, False, (StorageKind.LOCAL, name, WHOLE))

    def _checked(self, value: Any, form: str, low: int, below: Size) -> str:
        """The text of an array of indices: offsets are compared by their last one, which is the
        largest; what the host computes from offsets, in checking mode.
        """
        if self._native.checks_bounds:
            return f"native.indices({form}, {low}, {below})"
        if isinstance(value, NumpyOperand):
            return f"native.offsets({form}, {below})"
        return f"np.ascontiguousarray({form})"


def _emit_tiles(writer: NativeModuleWriter, kernel: MatmulBody) -> None:
    """Append a kernel of products: fused, or one after the other, or else as loops."""
    writer.accesses.check_kernel(kernel, exactly=True)
    if kernel.is_empty:
        return
    try:
        draft = product_draft(writer, kernel)
    except NotLowered:
        writer.loops(_separated(writer, kernel))
    else:
        draft.write(writer)


def _separated(writer: NativeModuleWriter, kernel: MatmulBody) -> KernelBody:
    """The kernel of what follows its products, which are appended; itself if they cannot be."""
    try:
        products = separate_products(writer, kernel)
    except NotLowered:
        return kernel
    return products.write(writer)
