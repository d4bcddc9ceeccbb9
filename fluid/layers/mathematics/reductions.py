"""Reductions along axes, and cumulative sums."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.layers.ops import exp, log
from fluid.recording.checks import (
    FLOATS,
    check_dtype,
    check_variable,
    check_variable_and_dtype,
    convert_dtype,
)

__all__ = [
    "cumsum",
    "logsumexp",
    "mean",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
]

_WITHOUT_HALF = ("float32", "float64", "int32", "int64")

Axes = int | Sequence[int] | None


def _reduce(
    op_type: str,
    input: Variable,
    dim: Axes,
    keep_dim: bool,
    name: str | None,
    dtypes: Collection[str] = (),
) -> Variable:
    check_variable(input, "input", op_type)
    if dtypes:
        check_dtype(input.dtype, "input", dtypes, op_type)
    axes = [dim] if isinstance(dim, int) else list(dim or ())
    attrs = {"dim": axes or [0], "keep_dim": keep_dim, "reduce_all": not axes}
    return append_simple_op(op_type, {"X": input}, attrs, name=name)


def reduce_sum(
    input: Variable, dim: Axes = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Sum over the axes `dim`, or over all elements: [1]."""
    return _reduce("reduce_sum", input, dim, keep_dim, name, _WITHOUT_HALF)


def reduce_mean(
    input: Variable, dim: Axes = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Mean over the axes `dim`, or over all elements: [1]."""
    return _reduce("reduce_mean", input, dim, keep_dim, name, _WITHOUT_HALF)


def reduce_max(
    input: Variable, dim: Axes = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Maximum over the axes `dim`, or over all elements: [1]."""
    return _reduce("reduce_max", input, dim, keep_dim, name)


def reduce_min(
    input: Variable, dim: Axes = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Minimum over the axes `dim`, or over all elements: [1]."""
    return _reduce("reduce_min", input, dim, keep_dim, name)


def reduce_prod(
    input: Variable, dim: Axes = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Product over the axes `dim`, or over all elements: [1]."""
    return _reduce("reduce_prod", input, dim, keep_dim, name)


def reduce_all(
    input: Variable, dim: Axes = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Logical AND over the axes `dim`, or over all elements: [1]."""
    return _reduce("reduce_all", input, dim, keep_dim, name, ("bool",))


def reduce_any(
    input: Variable, dim: Axes = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """Logical OR over the axes `dim`, or over all elements: [1]."""
    return _reduce("reduce_any", input, dim, keep_dim, name, ("bool",))


def mean(x: Variable, name: str | None = None) -> Variable:
    """Mean of all elements: [1]."""
    check_variable_and_dtype(x, "x", FLOATS, "mean")
    return append_simple_op("mean", {"X": x}, name=name)


def logsumexp(
    x: Variable,
    dim: Axes = None,
    keepdim: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return `log(sum(exp(x)))` over the axes `dim` or all elements ([1]), written to `out` if not
    None.

    Composed of these three ops, so it overflows where `exp(x)` does.
    """
    check_variable_and_dtype(x, "x", ("float32", "float64"), "logsumexp")
    total = reduce_sum(exp(x), dim, keepdim)
    if out is None:
        return log(total, name)
    check_variable_and_dtype(out, "out", (convert_dtype(x.dtype),), "logsumexp")
    LayerHelper("logsumexp", name=name).append_op("log", inputs={"X": total}, outputs={"Out": out})
    return out


def cumsum(
    x: Variable, axis: int | None = None, exclusive: bool | None = None, reverse: bool | None = None
) -> Variable:
    """Cumulative sum along `axis` (default: the last).

    `exclusive` omits the element itself from its sum; `reverse` sums from the end.
    """
    attrs: dict[str, object] = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    return append_simple_op("cumsum", {"X": x}, attrs)
