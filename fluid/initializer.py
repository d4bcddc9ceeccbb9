"""Parameter initializers: each prepends one op to the startup program.

Ops are prepended, so the startup program lists them in reverse order of creation.
With a program seed every op has a different seed, see `Program.random_seed`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

from compiler.ir.types import HALVES, DType
from compiler.support.user_warnings import warn_user
from fluid import unique_name
from fluid.framework import Block, Operator, Variable
from fluid.recording.annotations import Attributes
from fluid.recording.arguments import typed

__all__ = [
    "Bilinear",
    "BilinearInitializer",
    "Constant",
    "ConstantInitializer",
    "Initializer",
    "MSRA",
    "MSRAInitializer",
    "Normal",
    "NormalInitializer",
    "NumpyArrayInitializer",
    "TruncatedNormal",
    "TruncatedNormalInitializer",
    "Uniform",
    "UniformInitializer",
    "Xavier",
    "XavierInitializer",
]

_VALUES = {"float32": "fp32_values", "int32": "int32_values", "int64": "int64_values"}


class Initializer:
    """Base class of initializers, which are called with a variable and prepend an op."""

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend the op to `block`, the global block of the startup program."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")

    def _compute_fans(self, var: Variable) -> tuple[int, int]:
        """Return the fan-in and fan-out of a weight: [in, out] or [out, in, height, width]."""
        shape = var.shape
        if len(shape) < 2:
            size = math.prod(shape)
            return size, size
        if len(shape) == 2:
            return shape[0], shape[1]
        field = math.prod(shape[2:])
        return shape[1] * field, shape[0] * field


class ConstantInitializer(Initializer):
    """Initializes all elements to `value`."""

    @typed
    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        self._value = value
        self._force_cpu = force_cpu

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend `fill_constant`."""
        attrs = {"value": float(self._value), "force_cpu": self._force_cpu}
        return _prepend_fill("fill_constant", var, block, attrs)


class _Random(Initializer):
    """Base class of random initializers; seed 0 means the program's seed."""

    @typed
    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def _uniform(self, var: Variable, block: Block, low: float, high: float) -> Operator:
        attrs = {"min": float(low), "max": float(high)}
        return self._drawn("uniform_random", var, block, attrs)

    def _normal(self, var: Variable, block: Block, mean: float, std: float) -> Operator:
        attrs = {"mean": float(mean), "std": float(std)}
        return self._drawn("gaussian_random", var, block, attrs)

    def _drawn(self, op_type: str, var: Variable, block: Block, attrs: Attributes) -> Operator:
        if not var.element.is_float:
            raise TypeError(
                f"{op_type} fills floating-point variables, but {var.name!r} is {var.dtype.name}"
            )
        seed = self._seed or block.program.fresh_seed()
        return _prepend_fill(op_type, var, block, {**attrs, "seed": seed})


class UniformInitializer(_Random):
    """Uniform in [`low`, `high`); optionally `diag_val` overwrites a diagonal."""

    @typed
    def __init__(
        self,
        low: float = -1.0,
        high: float = 1.0,
        seed: int = 0,
        diag_num: int = 0,
        diag_step: int = 0,
        diag_val: float = 1.0,
    ) -> None:
        super().__init__(seed)
        if high < low:
            raise ValueError(f"Uniform needs low <= high, but received {low} and {high}")
        self._low, self._high = low, high
        self._diagonal = {"diag_num": diag_num, "diag_step": diag_step, "diag_val": diag_val}

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend `uniform_random`."""
        attrs: dict[str, object] = {"min": float(self._low), "max": float(self._high)}
        if self._diagonal["diag_num"]:
            attrs |= self._diagonal
        return self._drawn("uniform_random", var, block, attrs)


class NormalInitializer(_Random):
    """Normal with mean `loc` and standard deviation `scale`."""

    @typed
    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__(seed)
        self._mean, self._std_dev = loc, scale

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend `gaussian_random`."""
        return self._normal(var, block, self._mean, self._std_dev)


class TruncatedNormalInitializer(NormalInitializer):
    """Normal, truncated to two standard deviations by resampling."""

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend `truncated_gaussian_random`."""
        attrs = {"mean": float(self._mean), "std": float(self._std_dev)}
        return self._drawn("truncated_gaussian_random", var, block, attrs)


class XavierInitializer(_Random):
    """Preserves the scale of values and gradients across layers (Glorot & Bengio, 2010)."""

    @typed
    def __init__(
        self,
        uniform: bool = True,
        fan_in: float | None = None,
        fan_out: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        self._is_uniform, self._fan_in, self._fan_out = uniform, fan_in, fan_out

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend `uniform_random` within sqrt(6 / (in + out)), or `gaussian_random`."""
        inward, outward = self._compute_fans(var)
        fans = inward if self._fan_in is None else self._fan_in
        fans += outward if self._fan_out is None else self._fan_out
        if not self._is_uniform:
            return self._normal(var, block, 0.0, math.sqrt(2.0 / fans))
        limit = math.sqrt(6.0 / fans)
        return self._uniform(var, block, -limit, limit)


class MSRAInitializer(_Random):
    """Preserves the scale of values through rectifiers (He et al., 2015)."""

    @typed
    def __init__(self, uniform: bool = True, fan_in: float | None = None, seed: int = 0) -> None:
        super().__init__(seed)
        self._is_uniform, self._fan_in = uniform, fan_in

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend `uniform_random` within sqrt(6 / in), or `gaussian_random`."""
        fan_in = self._compute_fans(var)[0] if self._fan_in is None else self._fan_in
        if not self._is_uniform:
            return self._normal(var, block, 0.0, math.sqrt(2.0 / fan_in))
        limit = math.sqrt(6.0 / fan_in)
        return self._uniform(var, block, -limit, limit)


class BilinearInitializer(Initializer):
    """Weights of a transposed convolution that upsamples images by bilinear interpolation."""

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend `assign_value`; ValueError unless the filter is [out, in, size, size]."""
        if len(var.shape) != 4 or var.shape[2] != var.shape[3]:
            raise ValueError(f"Bilinear requires [out, in, size, size], not {list(var.shape)}")
        size = var.shape[3]
        half = math.ceil(size / 2.0)
        center = (2 * half - 1 - half % 2) / (2.0 * half)
        slope = 1 - np.abs(np.arange(size) / half - center)
        weight = np.broadcast_to(np.outer(slope, slope), var.shape)
        return NumpyArrayInitializer(weight)(var, block)


class NumpyArrayInitializer(Initializer):
    """Initializes to the elements of an array, which are stored in the program."""

    @typed
    def __init__(self, value: np.ndarray) -> None:
        self._value = value

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Prepend `assign_value`; ValueError if no array can initialize a variable of this dtype.

        As in the reference the variable has the shape of the array, with a warning if it is
        declared with another one.
        """
        dtype = (DType.FP32 if var.element in HALVES else var.element).numpy
        shape = self._value.shape
        if dtype.name not in _VALUES:
            raise ValueError(f"an array can not initialize {var.name!r}, which is {dtype.name}")
        if shape != var.shape:
            what = f"{var.name!r}, which is declared with the shape {var.shape}"
            warn_user(f"an array of shape {shape} initializes {what}")
        attrs = {
            "shape": list(shape),
            _VALUES[dtype.name]: self._value.astype(dtype).ravel().tolist(),
        }
        return _prepend_fill("assign_value", var, block, attrs)


def _prepend_fill(op_type: str, var: Variable, block: Block, attrs: Attributes) -> Operator:
    """Prepend an op that fills a variable; half precision is filled as float32, then cast."""
    filled = var if var.element not in HALVES else _single(op_type, var, block)
    where = {"shape": list(var.shape), "dtype": filled.dtype}
    op = block.prepend_op(op_type, outputs={"Out": filled}, attrs={**where, **attrs})
    if filled is not var:
        types = {"in_dtype": filled.dtype, "out_dtype": var.dtype}
        block.append_op("cast", inputs={"X": filled}, outputs={"Out": var}, attrs=types)
    return op


def _single(op_type: str, var: Variable, block: Block) -> Variable:
    name = unique_name.generate(f"{op_type}.{var.name}.tmp")
    return block.create_var(name=name, shape=var.shape, dtype="float32")


def force_init_on_cpu() -> bool:
    """Return False: of releases up to 1.6, where initialization could be bound to the CPU."""
    return False


@contextmanager
def init_on_cpu() -> Generator[None]:
    """Do nothing, with a warning: of releases up to 1.6, see `force_init_on_cpu`."""
    what = "init_on_cpu has no effect: a startup program runs on the place of its Executor"
    warn_user(what, DeprecationWarning)
    yield


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer
