"""Random number ops. Seed 0 yields different numbers in every step; any other seed the same ones.

The reference also reseeds in every step, so two ops of equal seed and shape agree there too; the
values differ from the reference's, which uses the C++ standard library's generator.

On a device numbers are computed from a counter-based RNG key, which the pass `draw_keys` derives
from the seed: the op then has a slot Key and draws from Key[place] (`compiler.ir.philox`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from compiler.errors import BadAttribute
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, required, writes
from compiler.ir.opdef.attribute_bounds import WIDE
from compiler.ir.opdef.kernel_builder import (
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.philox import normal_by_key, randint_by_key, uniform_by_key, uniform_float64_by_key
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.axes import element_type, int_values
from compiler.ops.math.sort_kernels import MAX_RANKED
from compiler.ops.shape.creation import SHAPE_TENSORS, shape_from_inputs
from compiler.ops.shape.random_kernels import (
    draw_integers,
    draw_normal,
    draw_permutation,
    draw_truncated,
    draw_uniform,
    permutation_by_key,
    truncated,
)
from compiler.ops.type_checks import literal_shape
from compiler.support.free_memory import expect_memory

SEEDS = 2**32

DRAW_BYTES = 16
"""Bytes that a number takes while it is drawn and scaled."""


def generator(seed: int) -> np.random.Generator:
    """Return a random generator for one step."""
    return np.random.default_rng(seed % SEEDS if seed else None)


def require_float(op: str, code: int) -> None:
    """Raise BadAttribute unless `dtype` is float32 or float64."""
    dtype = DType.of(code)
    if dtype not in (DType.FP32, DType.FP64):
        raise BadAttribute(f"{op}: 'dtype' is {dtype.text}, expected f32 or f64")


# ---- what bodies use ----------------------------------------------------------------------------


def uniform_numbers(
    Key: Array | None, place: int, seed: int, sizes: Sequence[int], dtype: Any
) -> Array:
    """Return uniform numbers in [0, 1)."""
    if Key is None:
        source: Any = generator(seed)
        return source.random(sizes, dtype)
    draw = uniform_by_key if dtype is np.float32 else uniform_float64_by_key
    return draw(Key, place, sizes)


def normal_numbers(
    Key: Array | None, place: int, seed: int, sizes: Sequence[int], dtype: Any
) -> Array:
    """Return normal numbers of mean 0 and standard deviation 1."""
    if Key is None:
        source: Any = generator(seed)
        return source.standard_normal(sizes, dtype)
    return normal_by_key(Key, place, sizes, dtype)


def write_diagonal(Out: Array, count: int, step: int, value: float) -> Array:
    """Set every `step` + 1-th element in flat order to a value, in place; return the array."""
    Out.reshape(-1)[: count * (step + 1) : step + 1] = value
    return Out


def truncated_normal(source: np.random.Generator, sizes: list[int]) -> Array:
    """Return float64 normal numbers, redrawn while beyond ±2."""
    numbers = source.standard_normal(sizes)
    while (beyond := np.abs(numbers) > 2.0).any():
        numbers[beyond] = source.standard_normal(int(beyond.sum()))
    return numbers


# ---- tensors of a given shape -------------------------------------------------------------------


# ---- row ranges: with a `whole_shape`, Out has its rows from `first_row` in steps of `row_step`,
# so that servers with shards of a parameter initialise it as a single process does


def drawn_shape(op: Any, sizes: Sequence[int]) -> list[int]:
    """Return the shape to draw: `whole_shape` if only some of its rows are wanted."""
    return list(op.whole_shape or sizes)


def wanted_rows(op: Any, sizes: Sequence[int], whole: Array) -> Array:
    """Return the wanted rows of the numbers drawn."""
    if not op.whole_shape:
        return whole
    stop = op.first_row + op.row_step * sizes[0]
    return np.ascontiguousarray(whole[op.first_row : stop : op.row_step])


def row_range_reason(op: Any) -> str:
    """Return why drawing rows of a larger tensor has no device kernel; "" for all rows."""
    return "it draws rows of a larger tensor" if op.whole_shape else ""


def require_row_range(op: Any) -> None:
    """Raise BadAttribute unless `shape` is a row range of `whole_shape`."""
    if not op.whole_shape:
        return
    last = op.first_row + op.row_step * (op.shape[0] - 1) if op.shape else -1
    inside = op.first_row >= 0 and op.row_step >= 1 and last < op.whole_shape[0]
    if not inside or list(op.shape[1:]) != list(op.whole_shape[1:]):
        raise BadAttribute(
            f"{op.kind}: shape {op.shape} from row {op.first_row} in steps of {op.row_step} is no "
            f"part of whole_shape {op.whole_shape}"
        )


class RandomTensor(OpDef):
    """A new tensor of random numbers, its shape from `shape` or from tensors.

    ShapeTensor lists all sizes, ShapeTensorList has one tensor per size.
    """

    is_random = True
    overridden_sizes: ClassVar[Mapping[str, str]] = SHAPE_TENSORS

    ShapeTensor = reads(optional=True, no_grad=True)
    ShapeTensorList = reads(optional=True, many=True, no_grad=True)
    Key = reads(optional=True, no_grad=True)
    Out = writes()
    shape = attr_list(int, WIDE)
    seed = attr(0)
    dtype = attr(DType.FP32.code)
    place = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        self.check()
        shape = shape_from_inputs(
            self.kind, self.shape, s.get("ShapeTensor"), s.all("ShapeTensorList")
        )
        return TensorType(DType.of(self.dtype), shape)

    def check(self) -> None:
        """Raise BadAttribute for an unsupported dtype."""
        require_float(self.kind, self.dtype)


class RandomRows(RandomTensor):
    """A new tensor of random numbers, or rows of one."""

    whole_shape = attr(list[int]())
    first_row = attr(0)
    row_step = attr(1)

    def no_kernel_for_attributes(self) -> str:
        """Return why row ranges of a larger tensor are drawn on the host."""
        return row_range_reason(self)

    def check(self) -> None:
        """Raise BadAttribute for an unsupported dtype or an invalid row range."""
        super().check()
        require_row_range(self)


class UniformRandom(RandomRows, op="uniform_random"):
    """Out is uniform in [min, max).

    In flat order, `diag_num` elements spaced `diag_step` + 1 apart are `diag_val` instead.
    Reference: uniform_random_op.cc.
    """

    min = attr(-1.0)
    max = attr(1.0)
    diag_num = attr(0)
    diag_step = attr(0)
    diag_val = attr(1.0)

    def check(self) -> None:
        """Raise BadAttribute as `RandomRows` does, and for a diagonal of a row range."""
        super().check()
        if self.whole_shape and self.diag_num:
            raise BadAttribute(
                "uniform_random: 'diag_num' is not supported with rows of a larger tensor"
            )

    def numpy(
        self, ShapeTensor: Array | None, ShapeTensorList: list[Array] | None, Key: Array | None
    ) -> Array:
        sizes = int_values(ShapeTensor, ShapeTensorList, self.shape)
        dtype = element_type(self.dtype).type
        expect_memory(drawn_shape(self, sizes), DRAW_BYTES)
        drawn = uniform_numbers(Key, self.place, self.seed, drawn_shape(self, sizes), dtype)
        Out = drawn * dtype(self.max - self.min) + dtype(self.min)
        whole = write_diagonal(Out, self.diag_num, self.diag_step, self.diag_val)
        return wanted_rows(self, sizes, whole)

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out = s.Out
        lower_draw(k, "random", s.get("Key"), self, Out)
        k.line(f"np.multiply({Out}, {self.max - self.min!r}, out={Out})")
        k.line(f"np.add({Out}, {self.min!r}, out={Out})")
        if self.diag_num:
            step = self.diag_step + 1
            flat = Out.view((Out.type.numel,))
            k.line(f"{flat}[:{self.diag_num * step}:{step}] = {self.diag_val!r}")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        diagonal = (self.diag_num, self.diag_step + 1, self.diag_val)
        draw_uniform(k, s.Key, self.place, s.Out, self.min, self.max, diagonal)


class GaussianRandom(RandomRows, op="gaussian_random"):
    """Out is normal with mean `mean` and standard deviation `std`.

    Reference: gaussian_random_op.cc.
    """

    mean = attr(0.0)
    std = attr(1.0)

    def numpy(
        self, ShapeTensor: Array | None, ShapeTensorList: list[Array] | None, Key: Array | None
    ) -> Array:
        sizes = int_values(ShapeTensor, ShapeTensorList, self.shape)
        dtype = element_type(self.dtype).type
        expect_memory(drawn_shape(self, sizes), DRAW_BYTES)
        drawn = normal_numbers(Key, self.place, self.seed, drawn_shape(self, sizes), dtype)
        return wanted_rows(self, sizes, drawn * dtype(self.std) + dtype(self.mean))

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out = s.Out
        lower_draw(k, "standard_normal", s.get("Key"), self, Out)
        k.line(f"np.multiply({Out}, {self.std!r}, out={Out})")
        k.line(f"np.add({Out}, {self.mean!r}, out={Out})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        draw_normal(k, s.Key, self.place, s.Out, self.mean, self.std)


def lower_draw(k: SourceBuilder, law: str, Key: Operand | None, op: Any, Out: Operand) -> None:
    """Emit code that fills Out; one generator serves all unseeded steps of a binding."""
    dtype = f"np.{Out.type.dtype.numpy.name}"
    shape, rows = f"{Out}.shape", ""
    if op.whole_shape:
        stop = op.first_row + op.row_step * op.shape[0]
        shape, rows = f"{op.whole_shape}", f"[{op.first_row}:{stop}:{op.row_step}]"
    if Key is not None:
        draw = k.function(uniform_numbers if law == "random" else normal_numbers)
        k.line(f"np.copyto({Out}, {draw}({Key}, {op.place}, 0, {shape}, {dtype}){rows})")
        return
    expression = f"np.random.default_rng({op.seed % SEEDS if op.seed else ''})"
    source = expression if op.seed else k.at_bind(expression, [], "generator")
    if rows:
        k.line(f"np.copyto({Out}, {source}.{law}({shape}, {dtype}){rows})")
        return
    k.line(f"{source}.{law}(dtype={dtype}, out={Out})")


class TruncatedGaussianRandom(OpDef, op="truncated_gaussian_random"):
    """Out is normal, redrawn while beyond two standard deviations.

    Reference: truncated_gaussian_random_op.cc.
    """

    is_random = True

    Key = reads(optional=True, no_grad=True)
    Out = writes()
    shape = attr_list(int)
    seed = attr(0)
    dtype = attr(DType.FP32.code)
    mean = attr(0.0)
    std = attr(1.0)
    place = attr(0)
    whole_shape = attr(list[int]())
    first_row = attr(0)
    row_step = attr(1)

    def no_kernel_for_attributes(self) -> str:
        """Return why row ranges of a larger tensor are drawn on the host."""
        return row_range_reason(self)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_float(self.kind, self.dtype)
        require_row_range(self)
        return TensorType(DType.of(self.dtype), literal_shape(self.kind, self.shape))

    def numpy(self, Key: Array | None) -> Array:
        dtype = element_type(self.dtype)
        sizes = drawn_shape(self, self.shape)
        if Key is None:
            drawn = truncated_normal(generator(self.seed), sizes)
        else:
            drawn = truncated(np, uniform_numbers(Key, self.place, 0, sizes, dtype.type))
        return wanted_rows(self, self.shape, (drawn * self.std + self.mean).astype(dtype))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        draw_truncated(k, s.Key, self.place, s.Out, self.mean, self.std)


class RandomIntegers(RandomTensor, op="randint"):
    """Out is uniform over the integers in [low, high). Reference: randint_op.cc."""

    dtype = attr(DType.INT64.code)
    low = required(int, WIDE)
    high = required(int, WIDE)

    def check(self) -> None:
        """Raise BadAttribute for a non-integer dtype or an empty range."""
        if DType.of(self.dtype) not in (DType.INT32, DType.INT64) or self.low >= self.high:
            raise BadAttribute(
                f"randint: 'low' {self.low}, 'high' {self.high} and 'dtype' {self.dtype} are "
                "inconsistent"
            )

    def numpy(
        self, ShapeTensor: Array | None, ShapeTensorList: list[Array] | None, Key: Array | None
    ) -> Array:
        sizes = int_values(ShapeTensor, ShapeTensorList, self.shape)
        expect_memory(sizes, DRAW_BYTES)
        if Key is None:
            drawn = generator(self.seed).integers(self.low, self.high, sizes)
        else:
            drawn = randint_by_key(Key, self.place, sizes, self.high - self.low) + self.low
        return drawn.astype(element_type(self.dtype))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        draw_integers(k, s.Key, self.place, s.Out, self.low, self.high)


class RandomPermutation(OpDef, op="randperm"):
    """Out = a random permutation of 0 to n - 1. Reference: randperm_op.h."""

    is_random = True

    Key = reads(optional=True, no_grad=True)
    Out = writes()
    n = required(int)
    dtype = attr(DType.INT64.code)
    seed = attr(0)
    place = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        if self.n < 0:
            raise BadAttribute(f"randperm: 'n' is {self.n}, expected 0 or more")
        return TensorType(DType.of(self.dtype), (self.n,))

    def numpy(self, Key: Array | None) -> Array:
        if Key is None:
            order = generator(self.seed).permutation(self.n)
        else:
            order = permutation_by_key(Key, self.place, self.n)
        return order.astype(element_type(self.dtype))

    def host_instead_of_gpu(self, types: Mapping[str, TensorType]) -> str:
        """Return why it has no kernel on a GPU; empty if it has one."""
        return f"it sorts more than {MAX_RANKED.value} numbers" if self.n > MAX_RANKED.value else ""

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        draw_permutation(k, s.Key, self.place, s.Out)
