"""Interfaces between ops and code generators: source builder, kernel builder, operands.

An op's `lower(self, k, s)` receives a `SourceBuilder` and the operands in its slots, and emits
lines of the generated module. Buffers, offsets and devices are hidden, so an op file depends on
`ir` only.

    def lower(self, k, s):
        k.line(f"np.matmul({s.X.view((rows, inner))}, {s.Y.view((inner, cols))}, out={s.Out})")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from compiler.ir.attention import AttentionForm
from compiler.ir.dims import Size
from compiler.ir.opdef.slot_values import Slots
from compiler.ir.opdef.slots import Share
from compiler.ir.types import DType, Shape, TensorType
from compiler.ir.windows import ConvGeometry, PoolGeometry
from compiler.support.dataclass import dataclass


class Operand(Protocol):
    """A value in a lowering; `str(operand)` is the Python expression for its array."""

    @property
    def type(self) -> TensorType:
        """The element type and shape; sizes may be expressions over module names."""
        ...

    @property
    def shape(self) -> Shape:
        """The shape of `type`."""
        ...

    def view(self, shape: Sequence[Size]) -> str:
        """Return an expression for a reshaped view, evaluated at bind time if possible.

        `-1` is not allowed: every size is a number or an expression.
        """
        ...


class SourceBuilder(Protocol):
    """The builder of a generated function body. Names in scope: `np` and sizes."""

    def line(self, text: str) -> None:
        """Emit one line that is executed in every step."""
        ...

    def scratch(self, shape: Sequence[Size], dtype: DType) -> Operand:
        """Allocate uninitialised scratch memory in the arena for the duration of this op."""
        ...

    def at_bind(self, expression: str, uses: Sequence[Operand], hint: str) -> str:
        """Return a name for an expression over `uses`, evaluated once at bind time.

        It is evaluated in every step if one of the arrays is a new feed in every step.
        """
        ...

    def aliased(self, a: Operand, b: Operand) -> bool:
        """Return whether both operands have the same memory, so that a copy is unnecessary."""
        ...

    def is_view_of(self, part: Operand, whole: Operand, share: Share) -> bool:
        """Return whether `part` is a view of `whole`, so that a copy is unnecessary.

        `share` describes which part it is; its slots are ignored.
        """
        ...

    def function(self, body: Callable[..., Any]) -> str:
        """Copy a Python function's source into the module and return its name there.

        The function may use `np`, its arguments and Python builtins only.
        """
        ...


# ---- device kernels ----------------------------------------------------------------------------

Number: TypeAlias = Any
"""A scalar expression in a kernel: an index, an element, or a computed value."""


class DeviceOperand(Protocol):
    """A value in device memory in a `kernel` body; `X[i, j]` loads one of its elements."""

    @property
    def type(self) -> TensorType:
        """The element type, and the shape it is viewed in."""
        ...

    @property
    def shape(self) -> Shape:
        """The shape of `type`."""
        ...

    def reshaped(self, shape: Sequence[Size]) -> DeviceOperand:
        """Return a view of the same elements in another shape."""
        ...

    def __getitem__(self, indices: Any) -> Number:
        """Load an element; indices must be in bounds in every program and iteration."""
        ...

    def at(self, *indices: Number, where: Number | None = None, other: float = 0) -> Number:
        """Load an element where `where` is true; else return `other` without a load."""
        ...


class KernelSlots(Slots[DeviceOperand]):
    """The operands of a kernel body: on the device, except those of `on_host` slots such as LoD."""

    @property
    def host(self) -> Slots[Operand]:
        """The operands in `on_host` slots."""
        return cast("Slots[Operand]", self)


class HostValue(Protocol):
    """The result of a host function at run time; `value[0]` is its first item."""

    def __getitem__(self, index: int) -> HostValue: ...

    def length(self) -> HostValue:
        """Return the number of items."""
        ...


AnyOperand = TypeVar("AnyOperand", contravariant=True)
"""A value in the memory of kernels, as a target knows it."""


class SpecialisedKernels(Protocol[AnyOperand]):
    """Kernels of whole ops that a target may have written for itself.

    Each method emits them and returns True, or returns False, having emitted nothing, if the target
    has none for these operands; by default it has none. Images and outputs have the layout of the
    geometry.
    """

    def convolution(
        self, conv: ConvGeometry, images: AnyOperand, filters: AnyOperand, outputs: AnyOperand,
        bias: AnyOperand | None = None,
    ) -> bool:  # fmt: skip
        """Emit a convolution; `bias` has an element for each filter."""
        return False

    def convolution_image_gradient(
        self, conv: ConvGeometry, outputs: AnyOperand, filters: AnyOperand, images: AnyOperand,
        bias: AnyOperand | None = None,
    ) -> bool:  # fmt: skip
        """Emit the gradient `images` of a convolution by its images, from that of its outputs.

        `bias` has an element for each channel of the images; it is added.
        """
        return False

    def convolution_filter_gradient(
        self, conv: ConvGeometry, images: AnyOperand, outputs: AnyOperand, filters: AnyOperand
    ) -> bool:
        """Emit the gradient `filters` of a convolution by its filters."""
        return False

    def max_pooling(self, pool: PoolGeometry, images: AnyOperand, outputs: AnyOperand) -> bool:
        """Emit the maximum of each window."""
        return False

    def max_pooling_gradient(
        self, pool: PoolGeometry, images: AnyOperand, maxima: AnyOperand, outputs: AnyOperand,
        gradient: AnyOperand,
    ) -> bool:  # fmt: skip
        """Emit the gradient of `max_pooling` by its images, from that of its outputs.

        The gradient of a maximum is added to its first position, in row-major order.
        """
        return False

    def mean_pooling(self, pool: PoolGeometry, images: AnyOperand, outputs: AnyOperand) -> bool:
        """Emit the mean of each window."""
        return False

    def mean_pooling_gradient(
        self, pool: PoolGeometry, outputs: AnyOperand, images: AnyOperand
    ) -> bool:
        """Emit the gradient `images` of `mean_pooling`, from that of its outputs."""
        return False

    def transposition(self, order: Sequence[int], source: AnyOperand, outputs: AnyOperand) -> bool:
        """Emit a transposed copy: axis i of the output is axis order[i] of the source."""
        return False

    def attention(self, form: AttentionForm, operands: Mapping[str, AnyOperand]) -> bool:
        """Emit attention without scores in memory.

        `operands` are "q", "k", "v", "out" and, if there are any, "mask", "rng", the RNG keys, and
        "statistics", what gradients read of each row of scores: see the op's slot Statistics.
        """
        return False

    def attention_gradient(self, form: AttentionForm, operands: Mapping[str, AnyOperand]) -> bool:
        """Emit the gradients "d_q", "d_k" and "d_v" of `attention` from "d_out", the gradient of
        out, and its other operands.
        """
        return False

    def sorting(
        self, axis: int, largest: bool, X: AnyOperand, values: AnyOperand, indices: AnyOperand
    ) -> bool:
        """Emit the first values along an axis, as many as `values` has, and their indices.

        The order is stable; NaN is the largest value.
        """
        return False


@dataclass(frozen=True)
class Lengths:
    """How many products are summed in each matrix of a batch, if that differs.

    `each` returns it for batch indices; `total` is the sum over the batch.
    """

    each: Callable[[Sequence[Number]], Number]
    total: Size


class KernelBuilder(SpecialisedKernels[DeviceOperand], Protocol):
    """A builder of device kernels in scalar form, one program per element of a shape.

        def kernel(self, k, s):                 # each row's sum
            i, = k.grid(s.X.shape[0])
            j = k.loop(s.X.shape[1])
            k.store(s.Out, (i,), k.sum(s.X[i, j], j))

    It is also the namespace of functions: `k.exp(x)`, `k.maximum(x, 0.0)`, `k.where(c, a, b)`.
    """

    @property
    def in_order(self) -> bool:
        """True if reductions must be deterministic: summed in the same order in every run."""
        ...

    @property
    def on_gpu(self) -> bool:
        """True if adjacent elements are computed by adjacent threads, which share sectors."""
        ...

    def grid(self, *shape: Size) -> tuple[Number, ...]:
        """Start a kernel over a shape, one program per element; returns the element's indices."""
        ...

    def loop(self, size: Size, until: Number | None = None) -> Number:
        """Return the index of a reduction loop, 0 to `size` - 1; one loop per expression.

        `until`, an expression without reductions that is at most `size`, ends the loop early,
        separately for each program.
        """
        ...

    def sum(self, value: Number, over: Number) -> Number:
        """Sum over all iterations of a loop."""
        ...

    def max(self, value: Number, over: Number) -> Number:
        """Return the maximum over all iterations of a loop."""
        ...

    def min(self, value: Number, over: Number) -> Number:
        """Return the minimum over all iterations of a loop."""
        ...

    def prod(self, value: Number, over: Number) -> Number:
        """Return the product over all iterations of a loop."""
        ...

    def moments(
        self, value: Number, over: Number, where: Number | None = None
    ) -> tuple[Number, Number]:
        """Return the mean and the (biased) variance over the iterations where `where` holds.

        Numerically stable if the mean is large compared with the deviation.
        """
        ...

    def cumsum(self, value: Number, over: Number) -> Number:
        """Return the inclusive prefix sum over the iterations of a loop that fits in one tile."""
        ...

    def argsort(self, value: Number, over: Number, descending: bool = False) -> Number:
        """Return the argsort over a loop: at iteration i, the index of the i-th in order.

        The sort is stable, NaN the largest. The loop must fit in one tile, values in 32 bits.
        """
        ...

    def argmax(self, value: Number, over: Number) -> Number:
        """Return the index of the first maximum over a loop."""
        ...

    def where(self, condition: Number, a: Number, b: Number) -> Number:
        """Select `a` where the condition holds, else `b`."""
        ...

    def size(self, size: Size) -> Number:
        """Convert a size to a kernel scalar."""
        ...

    def div(self, a: Number, b: Number) -> Number:
        """Return the quotient of two non-negative indices."""
        ...

    def mod(self, a: Number, b: Number) -> Number:
        """Return the remainder of two non-negative indices."""
        ...

    def unravel(self, index: Number, shape: Sequence[Number]) -> tuple[Number, ...]:
        """Convert a flat index to indices in a shape, whose sizes may be computed."""
        ...

    def ravel(self, indices: Sequence[Number], shape: Sequence[Size]) -> Number:
        """Convert indices in a shape to a flat index."""
        ...

    def key(self, keys: DeviceOperand, place: int) -> Number:
        """Load the RNG key at index `place` of a key tensor."""
        ...

    def uniform(
        self, key: Number, index: Number, dtype: DType = DType.FP32, stream: int = 0
    ) -> Number:
        """Draw a uniform number on [0, 1) for a key, an element index and a stream.

        The same key, index and stream always return the same number; see `compiler.ir.philox`.
        """
        ...

    def normal(
        self, key: Number, index: Number, dtype: DType = DType.FP32, stream: int = 0
    ) -> Number:
        """Draw a standard normal number for a key, an element index and a stream."""
        ...

    def randint(self, key: Number, index: Number, span: Number, stream: int = 0) -> Number:
        """Draw a uniform integer on [0, span) for a key, an element index and a stream."""
        ...

    def store(
        self,
        out: DeviceOperand,
        indices: Sequence[Number],
        value: Number,
        where: Number | None = None,
    ) -> None:
        """Store an element in every program (and iteration) where `where` holds."""
        ...

    def add(
        self,
        out: DeviceOperand,
        indices: Sequence[Number],
        value: Number,
        where: Number | None = None,
    ) -> None:
        """Add to an element atomically, in unspecified order."""
        ...

    def tiles(
        self, stack: Sequence[Size], rows: Size, columns: Size, inner: Size
    ) -> tuple[tuple[Number, ...], Number, Number, Number, Number]:
        """Start a kernel over a batch of matrix products, one program per element of the results.

        Returns the batch indices, row and column, and the reduction index as seen by the left and
        by the right operand.
        """
        ...

    def contract(self, a: Number, b: Number) -> Number:
        """Sum a * b over the reduction loop of `tiles`; `a` has no column, `b` no row."""
        ...

    def contraction(
        self,
        stack: Sequence[Size],
        sides: tuple[Size, Size, Size],
        factors: Callable[..., tuple[Number, Number]],
        store: Callable[..., None],
        column_sums: DeviceOperand | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        """Emit kernels for a batch of products with `sides` M, N and K.

        `factors(batch, i, j, left, right)` returns the two factors; `store(batch, i, j, total)`
        stores the sum, where its last argument holds if it has one more. A long reduction with a
        small result is split (split-K). `column_sums`, of one matrix product, receives the sums
        over K of the right factor. With `lengths`, a matrix sums fewer products than K.
        """
        ...

    def matmul(
        self,
        out: DeviceOperand,
        a: DeviceOperand,
        b: DeviceOperand,
        *,
        transposed: tuple[bool, bool] = (False, False),
        scale: float = 1.0,
        column_sums: DeviceOperand | None = None,
    ) -> None:
        """Emit a kernel for out = scale * a @ b over batches of matrices, optionally transposed.

        `column_sums`, of one matrix product, receives the sums of b's columns after its transpose.
        """
        ...

    def rows_and_sums(
        self,
        table: tuple[Size, Size],
        row: Callable[[Number, Number], None],
        values: Callable[[Number, Number], Sequence[Number]],
        outs: Sequence[DeviceOperand],
    ) -> None:
        """Emit kernels for the rows of a table [M, N], and for sums over them.

        `row(i, j)` stores the results of row i, with j the index of a loop over its columns. Each
        of `outs`, of shape [N], receives the sum over all rows of one of `values(i, j)`. Kernels
        that do both read operands once.
        """
        ...

    def expect_size(self, what: str, size: Size, expected: Size) -> None:
        """Require a size to be another one, which inference took for equal, when it is known."""
        ...

    def line(self, text: str) -> None:
        """Emit one line of Python that runs on the host after the kernels emitted so far.

        `str(operand)` is the expression for a value's torch tensor, in its declared shape.
        """
        ...

    def scratch(self, shape: Sequence[Size], dtype: DType) -> DeviceOperand:
        """Allocate uninitialised scratch memory on the device for the duration of this op."""
        ...

    def aliased(self, a: DeviceOperand, b: DeviceOperand) -> bool:
        """Return whether both operands have the same memory, so that a copy is unnecessary."""
        ...

    def is_view_of(self, part: DeviceOperand, whole: DeviceOperand, share: Share) -> bool:
        """Return whether `part` is a view of `whole`."""
        ...

    # Host code that runs before the kernels; `on_host` slots, such as LoD, hold an `Operand`.

    def on_host(self, function: Callable[..., Any], *given: Any, hint: str = "") -> HostValue:
        """Call a NumPy function of host arrays and plain numbers, before the kernels that follow.

        Its source is copied into the module; ops that make the same call on the same feeds share
        one call per step.
        """
        ...

    def to_device(
        self,
        value: Operand | HostValue,
        shape: Sequence[Size],
        dtype: DType = DType.INT64,
        *,
        low: int = 0,
        below: Size | None = None,
    ) -> DeviceOperand:
        """Copy a host array to the device.

        With `below`, it has indices from `low` up to it: an operand is a level of offsets, which
        are checked; a value of the host follows from them. Kernels test indices of other arrays.
        """
        ...

    def as_size(self, value: HostValue, hint: str = "size") -> Size:
        """Use an integer computed on the host as a size."""
        ...

    def set_size(self, size: Size, value: HostValue) -> None:
        """Define a data-dependent size of an output; see `OpDef.sets_output_sizes`."""
        ...

    def write_host(self, out: Operand, value: Operand | HostValue) -> None:
        """Write an `on_host` output."""
        ...

    def expect_at_most(self, size: Size, limit: Size) -> None:
        """State that a size that the host computes from offsets is at most another."""
        ...

    def for_each(self, values: HostValue, *hints: str) -> AbstractContextManager[tuple[Size, ...]]:
        """Launch the kernels emitted inside once for each tuple of integers in a list.

        `hints` name the integers, which those kernels use as sizes.
        """
        ...

    def __getattr__(self, name: str) -> Callable[..., Number]:
        """Return NumPy's elementwise function of this name."""
        ...
