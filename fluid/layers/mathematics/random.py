"""Layers that generate random numbers.

A `seed` of 0 draws new values in every step, any other seed the same values in every step; the
program's seed applies only to parameters and dropout, as in the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fluid import unique_name
from fluid.framework import Variable, convert_np_dtype_to_dtype_, device_guard
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.size_arguments import Sizes, shape_operands, size_operands
from fluid.recording.annotations import AttributeValue, DTypeLike, Slots
from fluid.recording.checks import (
    check_dtype,
    check_type,
    check_variable,
    check_variable_and_dtype,
    convert_dtype,
)

__all__ = [
    "gaussian_random",
    "gaussian_random_batch_size_like",
    "randint",
    "randn",
    "random_crop",
    "randperm",
    "sampling_id",
    "uniform_random",
    "uniform_random_batch_size_like",
]

REALS = ("float32", "float64")
SHAPE_SLOTS = ("ShapeTensor", "ShapeTensorList")


# ---- tensors of a given shape -------------------------------------------------------------------


def _expect_sizes(shape: Sizes, layer: str) -> None:
    """Raise ValueError for an empty shape or sizes below 1."""
    listed: list[int | Variable] = [] if isinstance(shape, Variable) else list(shape)
    wrong = [size for size in listed if isinstance(size, int) and size < 1]
    if wrong or (not listed and not isinstance(shape, Variable)):
        raise ValueError(f"shape of {layer} must have sizes of at least 1, but received {listed}")


def _append_random(
    helper: LayerHelper, inputs: Slots, attrs: Mapping[str, AttributeValue]
) -> Variable:
    out = helper.create_variable_for_type_inference(attrs["dtype"])
    helper.append_op(helper.layer_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def uniform_random(
    shape: Sizes, dtype: DTypeLike = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0
) -> Variable:
    """Sample uniformly from [`min`, `max`); sizes may be variables, see `fill_constant`.

    >>> import fluid
    >>> uniform_random([3, 4], seed=7).shape
    (3, 4)
    """
    check_type(shape, "shape", (list, tuple, Variable), "uniform_random")
    check_dtype(dtype, "dtype", REALS, "uniform_random")
    _expect_sizes(shape, "uniform_random")
    helper = LayerHelper("uniform_random")
    inputs, numbers = size_operands(helper, shape, "shape", SHAPE_SLOTS, dtype="int64")
    attrs = {"shape": numbers, "seed": seed, "min": float(min), "max": float(max)}
    attrs |= {"dtype": convert_np_dtype_to_dtype_(dtype)}
    return _append_random(helper, inputs, attrs)


def gaussian_random(
    shape: Sizes, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: DTypeLike = "float32"
) -> Variable:
    """Sample from a normal distribution of mean `mean` and standard deviation `std`.

    Sizes may be variables.
    """
    check_type(shape, "shape", (list, tuple, Variable), "gaussian_random")
    check_dtype(dtype, "dtype", REALS, "gaussian_random")
    helper = LayerHelper("gaussian_random")
    inputs, numbers = shape_operands(helper, shape)
    attrs = {"shape": numbers, "mean": float(mean), "std": float(std), "seed": seed}
    attrs |= {"dtype": convert_np_dtype_to_dtype_(dtype), "use_mkldnn": False}
    return _append_random(helper, inputs, attrs)


def _output_variable(
    helper: LayerHelper, name: str | None, out: Variable | None, dtype: DTypeLike
) -> Variable:
    """Return the variable to write to: `out`, a new one named `name`, or a temporary."""
    if out is not None:
        check_variable_and_dtype(out, "out", [convert_dtype(dtype)], helper.layer_type)
        return out
    if name is None:
        return helper.create_variable_for_type_inference(dtype)
    return helper.create_variable(name=name, dtype=dtype, persistable=False)


def randint(
    low: int,
    high: int | None = None,
    shape: Sizes | None = None,
    out: Variable | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Sample integers uniformly from [`low`, `high`), or from [0, `low`) if `high` is None.

    The dtype is int64 (default) or int32; without a shape the result has one element.
    """
    dtype, shape = dtype or "int64", [1] if shape is None else shape
    check_dtype(dtype, "dtype", ("int32", "int64"), "randint")
    check_type(shape, "shape", (list, tuple, Variable), "randint")
    _expect_sizes(shape, "randint")
    low, high = (0, low) if high is None else (low, high)
    if low >= high:
        raise ValueError(f"randint requires low < high, but received {low} and {high}")
    helper = LayerHelper("randint", name=name)
    inputs, numbers = size_operands(helper, shape, "shape", SHAPE_SLOTS, dtype="int64")
    out = _output_variable(helper, name, out, dtype)
    out.stop_gradient = stop_gradient
    attrs = {"low": low, "high": high, "seed": seed, "dtype": out.dtype}
    attrs |= {} if inputs else {"shape": numbers}
    with device_guard(device):
        helper.append_op("randint", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def randn(
    shape: Sequence[int],
    out: Variable | None = None,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Sample from the standard normal distribution; new values in every step."""
    check_type(shape, "shape", (list, tuple), "randn")
    _expect_sizes(shape, "randn")
    dtype = dtype or "float32"
    check_dtype(dtype, "dtype", REALS, "randn")
    helper = LayerHelper("randn", name=name)
    out = _output_variable(helper, None, out, dtype)
    out.stop_gradient = stop_gradient
    attrs = {"shape": list(shape), "mean": 0.0, "std": 1.0, "dtype": out.dtype}
    with device_guard(device):
        helper.append_op("gaussian_random", outputs={"Out": out}, attrs=attrs)
    return out


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: DTypeLike = "int64",
    device: str | None = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Variable:
    """Return a random permutation of 0 … `n` - 1."""
    if n < 1:
        raise ValueError(f"randperm takes a number of at least 1, but received {n}")
    check_dtype(dtype, "dtype", ("int64", "int32"), "randperm")
    check_type(stop_gradient, "stop_gradient", bool, "randperm")
    helper = LayerHelper("randperm")
    out = _output_variable(helper, None, out, dtype)
    out.stop_gradient = out.stop_gradient or stop_gradient
    attrs = {"n": n, "dtype": out.dtype, "seed": seed}
    with device_guard(device):
        helper.append_op("randperm", outputs={"Out": out}, attrs=attrs)
    return out


# ---- sized like another tensor ------------------------------------------------------------------


def _batch_like(
    op_type: str, input: Variable, dtype: DTypeLike, attrs: dict[str, AttributeValue]
) -> Variable:
    check_variable(input, "input", op_type)
    check_type(attrs["shape"], "shape", (list, tuple), op_type)
    check_dtype(dtype, "dtype", REALS, op_type)
    attrs |= {"shape": list(attrs["shape"]), "dtype": convert_np_dtype_to_dtype_(dtype)}
    return append_simple_op(op_type, {"Input": input}, attrs, dtype=dtype)


def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: DTypeLike = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """`uniform_random` with axis `output_dim_idx` sized like axis `input_dim_idx` of `input`."""
    check_variable_and_dtype(
        input, "input", ("float32", "float64"), "uniform_random_batch_size_like"
    )
    attrs = {"shape": shape, "input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx}
    attrs |= {"min": float(min), "max": float(max), "seed": seed}
    return _batch_like("uniform_random_batch_size_like", input, dtype, attrs)


def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: DTypeLike = "float32",
) -> Variable:
    """`gaussian_random` with axis `output_dim_idx` sized like axis `input_dim_idx` of `input`."""
    attrs = {"shape": shape, "input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx}
    attrs |= {"mean": float(mean), "std": float(std), "seed": seed}
    return _batch_like("gaussian_random_batch_size_like", input, dtype, attrs)


# ---- sampling -----------------------------------------------------------------------------------


def sampling_id(
    x: Variable,
    min: float = 0.0,
    max: float = 1.0,
    seed: int | None = 0,
    dtype: DTypeLike = "float32",
) -> Variable:
    """Sample one column index per row of `x`, whose elements are the probabilities."""
    check_variable(x, "x", "sampling_id")
    attrs = {"min": min, "max": max, "seed": seed}
    return append_simple_op("sampling_id", {"X": x}, attrs, dtype=dtype)


def random_crop(x: Variable, shape: Sequence[int], seed: int | Variable | None = None) -> Variable:
    """Crop each instance of `x` to `shape` at an independent random offset.

    The RNG state is a variable that is updated in every step; the startup program initializes it
    with `seed`, or with a random one if None.
    """
    dtypes = ("float32", "float64", "uint8", "int16", "int32")
    check_variable_and_dtype(x, "x", dtypes, "random_crop")
    check_type(shape, "shape", (list, tuple), "random_crop")
    if not isinstance(seed, int | Variable | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"seed of random_crop must be a number or a variable, not {seed!r}")
    helper = LayerHelper("random_crop")
    out = helper.create_variable_for_type_inference(x.dtype)
    attrs: dict[str, object] = {"shape": list(shape), "startup_seed": seed}
    if isinstance(seed, Variable):
        attrs["startup_seed"] = None
    else:
        seed = _seed_variable(helper, seed)
    outputs = {"Out": out, "SeedOut": seed}
    helper.append_op("random_crop", inputs={"X": x, "Seed": seed}, outputs=outputs, attrs=attrs)
    return out


def _seed_variable(helper: LayerHelper, seed: int | None) -> Variable:
    """Create a persistable seed that the startup program initializes, at random if `seed` is
    None.
    """
    var = helper.create_global_variable(
        name=unique_name.generate("random_crop_seed"), dtype="int64", shape=[1], persistable=True
    )
    if seed is not None:
        helper.set_variable_initializer(var, Constant(seed))
        return var
    startup = helper.startup_program.global_block()
    there = startup.create_var(name=var.name, dtype="int64", shape=[1], persistable=True)
    attrs = {"shape": [1], "low": 0, "high": 65536, "dtype": there.dtype}
    startup.append_op("randint", outputs={"Out": there}, attrs=attrs)
    return var
