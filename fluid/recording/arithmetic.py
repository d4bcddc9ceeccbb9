"""Python operators on variables: each appends the corresponding op, as in `math_op_patch.py`.

With a number, `+ - * /` become one `scale`; between variables they become `elementwise_*`, and
comparisons become `less_than` and so on. Results are called `tmp_0`, `tmp_1`, …
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Protocol, Self, TypeGuard, TypeVar

from compiler.ir.program import VarDesc
from compiler.ir.types import DType, VarTypeId
from compiler.support.tracebacks import entry_point
from fluid.recording.annotations import Attributes, DTypeLike
from fluid.recording.arguments import ArgumentError

__all__ = ["VariableOperand", "cast", "operator", "scaled"]


class VariableOperand(Protocol):
    """What operators need of a variable, and which ops they can append."""

    name: str
    element: DType
    dims: tuple[int, ...] | None

    @property
    def stop_gradient(self) -> bool:
        """Whether it gets no gradient."""
        ...

    @stop_gradient.setter
    def stop_gradient(self, value: bool) -> None: ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, -1 for unknown sizes."""
        ...

    @property
    def dtype(self) -> VarTypeId:
        """Its dtype."""
        ...

    def temporary(
        self, dtype: DTypeLike, name: str | None = "tmp", *, stop_gradient: bool = False
    ) -> Self:
        """Create a variable in the current block of its program."""
        ...

    def append(
        self, op_type: str, inputs: Mapping[str, object], out: Self, attrs: Attributes
    ) -> Self:
        """Append an op to the current block of its program; returns its output `out`."""
        ...


V = TypeVar("V", bound=VariableOperand)

Factors = Callable[[float], tuple[float, float]]
"""Maps a number to the equivalent (scale, bias)."""

_COMPARISONS = {"equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"}


def operator(
    op_type: str, factors: Factors | None = None, *, swap: bool = False
) -> Callable[[V, object], V]:
    """Create a method that appends `op_type`, or one `scale` if the other operand is a number."""

    @entry_point
    def method(self: V, other: object) -> V:
        if is_variable(other, self):
            other = other if other.element is self.element else cast(other, self.dtype)
        elif not isinstance(other, Real):
            return NotImplemented
        elif factors and (op_type != "elementwise_div" or self.element.is_float):
            return scaled(self, *factors(_as_element(self, other)))
        else:
            other = _as_constant(self, float(other), whole=swap)
        x, y = (other, self) if swap else (self, other)
        return _appended(op_type, x, y)

    method.__doc__ = f"Append `{op_type}`."
    return method


def is_variable(value: object, like: V) -> TypeGuard[V]:
    """Whether a value is a variable, as `like` is."""
    return isinstance(value, VarDesc)


def scaled(var: V, scale: float, bias: float) -> V:
    """Append a `scale`: var * scale + bias."""
    attrs = {"scale": scale, "bias": bias}
    return var.append("scale", {"X": var}, var.temporary(var.dtype), attrs)


def cast(var: V, dtype: DTypeLike) -> V:
    """Append a `cast` to another dtype."""
    out = var.temporary(dtype)
    return var.append("cast", {"X": var}, out, {"in_dtype": var.dtype, "out_dtype": out.dtype})


def _appended(op_type: str, x: V, y: V) -> V:
    out = x.temporary("bool" if op_type in _COMPARISONS else x.dtype)
    # Batch axes are aligned from the left, as in the reference.
    axis = 0 if y.dims and y.dims[0] == -1 else -1
    return x.append(op_type, {"X": x, "Y": y}, out, {"axis": axis})


def _as_element(var: VariableOperand, number: Real) -> float:
    """Convert a number to the variable's dtype; raises ArgumentError for 0.5 with integers."""
    if not var.element.is_float and number != math.trunc(number):
        raise ArgumentError(f"{var.name!r} holds {var.element.text}, which cannot hold {number}")
    return float(number)


def _as_constant(var: V, number: float, *, whole: bool) -> V:
    """A number as a variable of the same dtype; with `whole`, of the same shape."""
    if whole and -1 in var.shape:
        return _filled_like(var, number)
    return _filled(var, number, var.shape if whole else (1,))


def _filled(var: V, value: float, shape: tuple[int, ...]) -> V:
    out = var.temporary(var.dtype)
    attrs = {"shape": shape, "dtype": var.dtype, "value": value, "force_cpu": False}
    var.append("fill_constant", {}, out, attrs)
    out.stop_gradient = True
    return out


def _filled_like(var: V, value: float) -> V:
    """A constant whose first unknown dim is taken from `var` at run time."""
    axis = var.shape.index(-1)
    shape = [abs(size) if i != axis else -1 for i, size in enumerate(var.shape)]
    sizes = {"input_dim_idx": axis, "output_dim_idx": axis}
    attrs = {"shape": shape, "dtype": var.dtype, "value": value, **sizes}
    out = var.temporary(var.dtype)
    var.append("fill_constant_batch_size_like", {"Input": var}, out, attrs)
    out.stop_gradient = True
    return out
