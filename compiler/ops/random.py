"""Random numbers. A seed of 0 means other numbers in every step; any other the same in each.

The reference seeds anew in every step as well, so two ops of one seed and shape agree there too;
the numbers themselves differ from the reference's, whose generator is the C++ library's.
"""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.kernel import Kernel, Operand
from compiler.ir.opdef import OpDef, Value, Xp, attr, reads, writes
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.checks import literal_shape

SEEDS = 2**32


def generator(seed: int) -> np.random.Generator:
    """A source of random numbers for one step."""
    return np.random.default_rng(seed % SEEDS if seed else None)


def truncated_normal(seed: int, shape: list[int], mean: float, std: float) -> Array:
    """Float64 normal numbers within two standard deviations; a module carries this function."""
    source = np.random.default_rng(seed % 2**32 if seed else None)
    numbers = source.standard_normal(shape)
    while (beyond := np.abs(numbers) > 2.0).any():
        numbers[beyond] = source.standard_normal(int(beyond.sum()))
    return numbers * std + mean


def lower_generator(k: Kernel, seed: int) -> str:
    """The same in generated code; one source serves all unseeded steps of a binding."""
    if seed:
        return f"np.random.default_rng({seed % SEEDS})"
    return k.once("np.random.default_rng()", [], "generator")


class Filled(OpDef):
    """A new tensor of random numbers."""

    is_random = True

    Out = writes()
    shape = attr(list[int]())
    seed = attr(0)
    dtype = attr(DType.FP32.code)

    def infer(self) -> TensorType:
        dtype = DType.of(self.dtype)
        if dtype not in (DType.FP32, DType.FP64):
            raise BadAttribute(f"{self.kind}: 'dtype' is {dtype.text}, expected f32 or f64")
        return TensorType(dtype, literal_shape(self.kind, self.shape))


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

    def numpy(self) -> Array:
        dtype = DType.of(self.dtype).numpy
        Out = generator(self.seed).random(self.shape, dtype.type)
        Out = Out * dtype.type(self.max - self.min) + dtype.type(self.min)
        if self.diag_num:
            step = self.diag_step + 1
            Out.reshape(-1)[: self.diag_num * step : step] = self.diag_val
        return Out

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

    def numpy(self) -> Array:
        dtype = DType.of(self.dtype).numpy
        Out = generator(self.seed).standard_normal(self.shape, dtype.type)
        return Out * dtype.type(self.std) + dtype.type(self.mean)

    def lower(self, k: Kernel, Out: Operand) -> None:
        dtype = f"np.{Out.type.dtype.numpy.name}"
        k.line(f"{lower_generator(k, self.seed)}.standard_normal(dtype={dtype}, out={Out})")
        k.line(f"np.multiply({Out}, {self.std!r}, out={Out})")
        k.line(f"np.add({Out}, {self.mean!r}, out={Out})")


class TruncatedGaussianRandom(GaussianRandom, op="truncated_gaussian_random"):
    """Normal, but what lies beyond two standard deviations is drawn again.

    Reference: truncated_gaussian_random_op.cc.
    """

    def numpy(self) -> Array:
        dtype = DType.of(self.dtype).numpy
        return truncated_normal(self.seed, self.shape, self.mean, self.std).astype(dtype)

    def lower(self, k: Kernel, Out: Operand) -> None:
        drawn = f"{self.seed}, {self.shape}, {self.mean!r}, {self.std!r}"
        k.line(f"np.copyto({Out}, {k.function(truncated_normal)}({drawn}), casting='unsafe')")


class Dropout(OpDef, op="dropout"):
    """In training Out = X where Mask, else 0; each Mask is 0 with probability `dropout_prob`.

    `upscale_in_train` divides what is kept by 1 - dropout_prob, and testing passes X on;
    `downgrade_in_infer` keeps X as it is in training and multiplies by 1 - dropout_prob in testing.
    `seed` counts only with `fix_seed`. Reference: dropout_op.h.
    """

    is_random = True

    X = reads()
    Out = writes()
    Mask = writes(optional=True)
    dropout_prob = attr(0.5)
    is_test = attr(False)
    fix_seed = attr(False)
    seed = attr(0)
    dropout_implementation = attr("downgrade_in_infer")

    def infer(self, X: TensorType) -> dict[str, TensorType]:
        if not 0.0 <= self.dropout_prob <= 1.0:
            raise BadAttribute(f"dropout: 'dropout_prob' is {self.dropout_prob}, not from 0 to 1")
        if self.dropout_implementation not in ("downgrade_in_infer", "upscale_in_train"):
            raise BadAttribute(
                f"dropout: 'dropout_implementation' is {self.dropout_implementation!r}, expected "
                "'downgrade_in_infer' or 'upscale_in_train'"
            )
        if not X.dtype.is_float:
            raise ShapeError(f"dropout: X is {X}, expected floating point")
        return {"Out": X, "Mask": X.with_dtype(DType.UINT8)}

    def factor(self) -> float:
        """What the elements that are kept are multiplied by."""
        kept = 1.0 - self.dropout_prob
        if self.dropout_implementation == "downgrade_in_infer":
            return kept if self.is_test else 1.0
        return 1.0 if self.is_test or kept == 0.0 else 1.0 / kept

    def source(self) -> int:
        """The seed that counts."""
        return self.seed if self.fix_seed else 0

    def noise(self, X: DType) -> DType:
        """The element type in which chance is drawn: X's, where NumPy's generators have it."""
        return X if X in (DType.FP32, DType.FP64) else DType.FP32

    def numpy(self, X: Array) -> dict[str, Array]:
        if self.is_test:
            return {"Out": X * X.dtype.type(self.factor()), "Mask": np.ones(X.shape, np.uint8)}
        noise = self.noise(DType.of(X.dtype)).numpy.type
        kept = generator(self.source()).random(X.shape, noise) >= noise(self.dropout_prob)
        return {"Out": X * kept * X.dtype.type(self.factor()), "Mask": kept.view(np.uint8)}

    def grad(self, xp: Xp, Mask: Value, d_Out: Value) -> Value:
        kept = d_Out * Mask
        return {"X": kept if self.factor() == 1.0 else kept * self.factor()}

    def lower(self, k: Kernel, X: Operand, Out: Operand | None, Mask: Operand | None) -> None:
        result = Out or k.scratch(X.shape, X.type.dtype)
        if self.is_test:
            k.line(f"np.multiply({X}, {self.factor()!r}, out={result})")
            if Mask is not None:
                k.line(f"{Mask}.fill(1)")
            return
        dtype = self.noise(X.type.dtype)
        chance = result if dtype is X.type.dtype else k.scratch(X.shape, dtype)
        mask = Mask or k.scratch(X.shape, DType.UINT8)
        kept = k.once(f"{mask}.view(np.bool_)", [mask], "kept")
        source = lower_generator(k, self.source())
        k.line(f"{source}.random(dtype=np.{dtype.numpy.name}, out={chance})")
        k.line(f"np.greater_equal({chance}, {self.dropout_prob!r}, out={kept})")
        k.line(f"np.multiply({X}, {kept}, out={result})")
        if self.factor() != 1.0:
            k.line(f"np.multiply({result}, {self.factor()!r}, out={result})")
