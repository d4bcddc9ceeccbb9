"""Random numbers. A seed of 0 means other numbers in every step; any other the same in each.

The reference seeds anew in every step as well, so two ops of one seed and shape agree there too;
the numbers themselves differ from the reference's, whose generator is the C++ library's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.opdef import OpDef, attr, reads, required, writes
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.checks import literal_shape, require_dtype
from compiler.ops.math.axes import element_type, whole_numbers
from compiler.ops.shape.creation import BatchSizeLike, sizes_like, told_shape

SEEDS = 2**32


def generator(seed: int) -> np.random.Generator:
    """A source of random numbers for one step."""
    return np.random.default_rng(seed % SEEDS if seed else None)


def lower_generator(k: Kernel, seed: int) -> str:
    """The same in generated code; one source serves all unseeded steps of a binding."""
    if seed:
        return f"np.random.default_rng({seed % SEEDS})"
    return k.once("np.random.default_rng()", [], "generator")


def require_float(op: str, code: int) -> None:
    """BadAttribute unless `dtype` is float32 or float64."""
    dtype = DType.of(code)
    if dtype not in (DType.FP32, DType.FP64):
        raise BadAttribute(f"{op}: 'dtype' is {dtype.text}, expected f32 or f64")


# ---- what bodies use ----------------------------------------------------------------------------


def even_numbers(seed: int, sizes: list[int], low: float, high: float, code: int) -> Array:
    """Numbers that are even over low <= number < high."""
    dtype = element_type(code).type
    source: Any = generator(seed)
    return source.random(sizes, dtype) * dtype(high - low) + dtype(low)


def write_diagonal(Out: Array, count: int, step: int, value: float) -> Array:
    """The same with elements that lie `step` + 1 apart in flat order made a value."""
    Out.reshape(-1)[: count * (step + 1) : step + 1] = value
    return Out


def normal_numbers(seed: int, sizes: list[int], mean: float, std: float, code: int) -> Array:
    """Normal numbers of a mean and a standard deviation."""
    dtype = element_type(code).type
    source: Any = generator(seed)
    return source.standard_normal(sizes, dtype) * dtype(std) + dtype(mean)


def truncated_normal(seed: int, shape: list[int], mean: float, std: float) -> Array:
    """Float64 normal numbers within two standard deviations."""
    source = generator(seed)
    numbers = source.standard_normal(shape)
    while (beyond := np.abs(numbers) > 2.0).any():
        numbers[beyond] = source.standard_normal(int(beyond.sum()))
    return numbers * std + mean


# ---- tensors of a given shape -------------------------------------------------------------------


class Filled(OpDef):
    """A new tensor of random numbers, in the shape `shape` or the one that tensors say.

    ShapeTensor lists the sizes, ShapeTensorList has a tensor for each.
    """

    is_random = True

    ShapeTensor = reads(optional=True, no_grad=True)
    ShapeTensorList = reads(optional=True, many=True, no_grad=True)
    Out = writes()
    shape = attr(list[int]())
    seed = attr(0)
    dtype = attr(DType.FP32.code)

    def infer(
        self, ShapeTensor: TensorType | None, ShapeTensorList: list[TensorType] | None
    ) -> TensorType:
        self.check()
        shape = told_shape(self.kind, self.shape, ShapeTensor, ShapeTensorList)
        return TensorType(DType.of(self.dtype), shape)

    def check(self) -> None:
        """BadAttribute for an element type it does not make."""
        require_float(self.kind, self.dtype)


class UniformRandom(Filled, op="uniform_random"):
    """Out is even over min <= Out < max.

    In flat order, `diag_num` elements that lie `diag_step` + 1 apart are `diag_val` instead.
    Reference: uniform_random_op.cc.
    """

    min = attr(-1.0)
    max = attr(1.0)
    diag_num = attr(0)
    diag_step = attr(0)
    diag_val = attr(1.0)

    def numpy(self, ShapeTensor: Array | None, ShapeTensorList: list[Array] | None) -> Array:
        sizes = whole_numbers(ShapeTensor, ShapeTensorList, self.shape)
        Out = even_numbers(self.seed, sizes, self.min, self.max, self.dtype)
        return write_diagonal(Out, self.diag_num, self.diag_step, self.diag_val)

    def lower(self, k: Kernel, Out: Operand) -> None:
        dtype = f"np.{Out.type.dtype.numpy.name}"
        k.line(f"{lower_generator(k, self.seed)}.random(dtype={dtype}, out={Out})")
        k.line(f"np.multiply({Out}, {self.max - self.min!r}, out={Out})")
        k.line(f"np.add({Out}, {self.min!r}, out={Out})")
        if self.diag_num:
            step = self.diag_step + 1
            flat = Out.view((Out.type.numel,))
            k.line(f"{flat}[:{self.diag_num * step}:{step}] = {self.diag_val!r}")


class GaussianRandom(Filled, op="gaussian_random"):
    """Out is normal with the given `mean` and standard deviation `std`.

    Reference: gaussian_random_op.cc.
    """

    mean = attr(0.0)
    std = attr(1.0)

    def numpy(self, ShapeTensor: Array | None, ShapeTensorList: list[Array] | None) -> Array:
        sizes = whole_numbers(ShapeTensor, ShapeTensorList, self.shape)
        return normal_numbers(self.seed, sizes, self.mean, self.std, self.dtype)

    def lower(self, k: Kernel, Out: Operand) -> None:
        dtype = f"np.{Out.type.dtype.numpy.name}"
        k.line(f"{lower_generator(k, self.seed)}.standard_normal(dtype={dtype}, out={Out})")
        k.line(f"np.multiply({Out}, {self.std!r}, out={Out})")
        k.line(f"np.add({Out}, {self.mean!r}, out={Out})")


class TruncatedGaussianRandom(OpDef, op="truncated_gaussian_random"):
    """Normal, but what lies beyond two standard deviations is drawn again.

    Reference: truncated_gaussian_random_op.cc.
    """

    is_random = True

    Out = writes()
    shape = attr(list[int]())
    seed = attr(0)
    dtype = attr(DType.FP32.code)
    mean = attr(0.0)
    std = attr(1.0)

    def infer(self) -> TensorType:
        require_float(self.kind, self.dtype)
        return TensorType(DType.of(self.dtype), literal_shape(self.kind, self.shape))

    def numpy(self) -> Array:
        drawn = truncated_normal(self.seed, self.shape, self.mean, self.std)
        return drawn.astype(element_type(self.dtype))


class RandomIntegers(Filled, op="randint"):
    """Out is even over the whole numbers low <= Out < high. Reference: randint_op.cc."""

    dtype = attr(DType.INT64.code)
    low = required(int)
    high = required(int)

    def check(self) -> None:
        """BadAttribute for an element type that holds no whole numbers, or an empty range."""
        if DType.of(self.dtype) not in (DType.INT32, DType.INT64) or self.low >= self.high:
            raise BadAttribute(
                f"randint: 'low' {self.low}, 'high' {self.high} and 'dtype' {self.dtype} do not go "
                "together"
            )

    def numpy(self, ShapeTensor: Array | None, ShapeTensorList: list[Array] | None) -> Array:
        sizes = whole_numbers(ShapeTensor, ShapeTensorList, self.shape)
        drawn = generator(self.seed).integers(self.low, self.high, sizes)
        return drawn.astype(element_type(self.dtype))


class RandomPermutation(OpDef, op="randperm"):
    """Out = the numbers from 0 to n - 1 in a random order. Reference: randperm_op.h."""

    is_random = True

    Out = writes()
    n = required(int)
    dtype = attr(DType.INT64.code)
    seed = attr(0)

    def infer(self) -> TensorType:
        if self.n < 0:
            raise BadAttribute(f"randperm: 'n' is {self.n}, expected 0 or more")
        return TensorType(DType.of(self.dtype), (self.n,))

    def numpy(self) -> Array:
        return generator(self.seed).permutation(self.n).astype(element_type(self.dtype))


# ---- tensors as long as another -----------------------------------------------------------------


class UniformRandomBatchSizeLike(BatchSizeLike, op="uniform_random_batch_size_like"):
    """`BatchSizeLike`, with numbers that are even over min <= Out < max.

    Reference: uniform_random_batch_size_like_op.cc.
    """

    is_random = True

    min = attr(-1.0)
    max = attr(1.0)
    seed = attr(0)
    diag_num = attr(0)
    diag_step = attr(0)
    diag_val = attr(1.0)

    def numpy(self, Input: Shape) -> Array:
        sizes = sizes_like(self.shape, self.output_dim_idx, Input, self.input_dim_idx)
        Out = even_numbers(self.seed, sizes, self.min, self.max, self.dtype)
        return write_diagonal(Out, self.diag_num, self.diag_step, self.diag_val)


class GaussianRandomBatchSizeLike(BatchSizeLike, op="gaussian_random_batch_size_like"):
    """`BatchSizeLike`, with normal numbers. Reference: gaussian_random_batch_size_like_op.cc."""

    is_random = True

    mean = attr(0.0)
    std = attr(1.0)
    seed = attr(0)

    def numpy(self, Input: Shape) -> Array:
        sizes = sizes_like(self.shape, self.output_dim_idx, Input, self.input_dim_idx)
        return normal_numbers(self.seed, sizes, self.mean, self.std, self.dtype)


# ---- chances ------------------------------------------------------------------------------------


class Bernoulli(OpDef, op="bernoulli"):
    """Out = 1 with the probability that X says, element by element, else 0. From Paddle 2.0."""

    is_random = True

    X = reads(no_grad=True)
    Out = writes()

    def infer(self, X: TensorType) -> TensorType:
        require_dtype(self.kind, "X", X, DType.FP32, DType.FP64)
        return X

    def numpy(self, X: Array) -> Array:
        return (generator(0).random(X.shape) < X).astype(X.dtype)


class SamplingId(OpDef, op="sampling_id"):
    """Out = for each row of X, weights in turn, the place where they pass a random number.

    The number is even over `min` to `max`; where all weights together do not pass it, it is the
    last place. Reference: sampling_id_op.h.
    """

    is_random = True

    X = reads(no_grad=True)
    Out = writes()
    min = attr(0.0)
    max = attr(1.0)
    seed = attr(0)

    def infer(self, X: TensorType) -> TensorType:
        if X.rank != 2:
            raise ShapeError(f"sampling_id: X is {X}, expected [batch, weights]")
        if self.min >= self.max:
            raise BadAttribute(f"sampling_id: 'min' is {self.min}, not below 'max' {self.max}")
        return TensorType(DType.INT64, X.shape[:1])

    def numpy(self, X: Array) -> Array:
        drawn = generator(self.seed).uniform(self.min, self.max, (len(X), 1))
        passed = np.cumsum(X, axis=1) > drawn
        passed[:, -1] = True
        return np.argmax(passed, axis=1)
