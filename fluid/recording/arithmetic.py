"""Python operators on variables: each appends the corresponding op, as in `math_op_patch.py`.

With a number, `+ - * /` become one `scale`; between variables they become `elementwise_*`, and
comparisons become `less_than` and so on. Results are called `tmp_0`, `tmp_1`, …
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

from compiler.ir.program import VarDesc
from compiler.support.tracebacks import entry_point
from fluid import unique_name
from fluid.recording.arguments import ArgumentError

Factors = Callable[[float], tuple[float, float]]
"""Maps a number to the equivalent (scale, bias)."""

_COMPARISONS = {"equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"}


def operator(op_type: str, factors: Factors | None = None, *, swap: bool = False) -> Any:
    """Create a method that appends `op_type`, or one `scale` if the other operand is a number."""

    @entry_point
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, Real | VarDesc):
            return NotImplemented
        exact = op_type != "elementwise_div" or self.element.is_float
        if factors and exact and isinstance(other, Real):
            return scaled(self, *factors(_as_element(self, other)))
        other = _as_operand(self, other, whole=swap)
        x, y = (other, self) if swap else (self, other)
        return _appended(op_type, x, y)

    method.__doc__ = f"Append `{op_type}`."
    return method


def _block(var: Any) -> Any:
    return var.block.program.current_block()


def _new(var: Any, dtype: Any) -> Any:
    return _block(var).create_var(name=unique_name.generate("tmp"), dtype=dtype)


def scaled(var: Any, scale: float, bias: float) -> Any:
    """Append a `scale`: var * scale + bias."""
    out = _new(var, var.dtype)
    attrs = {"scale": scale, "bias": bias}
    _block(var).append_op("scale", inputs={"X": var}, outputs={"Out": out}, attrs=attrs)
    return out


def cast(var: Any, dtype: Any) -> Any:
    """Append a `cast` to another dtype."""
    out = _new(var, dtype)
    attrs = {"in_dtype": var.dtype, "out_dtype": out.dtype}
    _block(var).append_op("cast", inputs={"X": var}, outputs={"Out": out}, attrs=attrs)
    return out


def _appended(op_type: str, x: Any, y: Any) -> Any:
    out = _new(x, "bool" if op_type in _COMPARISONS else x.dtype)
    # Batch axes are aligned from the left, as in the reference.
    axis = 0 if y.shape[:1] == (-1,) else -1
    _block(x).append_op(
        op_type, inputs={"X": x, "Y": y}, outputs={"Out": out}, attrs={"axis": axis}
    )
    return out


def _as_element(var: Any, number: Any) -> float:
    """Convert a number to the variable's dtype; raises ArgumentError for 0.5 with integers."""
    if not var.element.is_float and number != int(number):
        raise ArgumentError(f"{var.name!r} holds {var.element.text}, which cannot hold {number}")
    return float(number)


def _as_operand(var: Any, other: Any, *, whole: bool) -> Any:
    """The other operand as a variable of the same dtype; with `whole`, of the same shape."""
    if isinstance(other, VarDesc):
        return other if other.dtype == var.dtype else cast(other, var.dtype)
    if whole and -1 in var.shape:
        return _filled_like(var, float(other))
    return _filled(var, float(other), var.shape if whole else (1,))


def _filled(var: Any, value: float, shape: tuple[int, ...]) -> Any:
    out = _new(var, var.dtype)
    attrs = {"shape": shape, "dtype": var.dtype, "value": value, "force_cpu": False}
    _block(var).append_op("fill_constant", outputs={"Out": out}, attrs=attrs)
    out.stop_gradient = True
    return out


def _filled_like(var: Any, value: float) -> Any:
    """A constant whose first unknown dim is taken from `var` at run time."""
    axis = var.shape.index(-1)
    shape = [abs(size) if i != axis else -1 for i, size in enumerate(var.shape)]
    attrs = {"shape": shape, "dtype": var.dtype, "value": value}
    attrs |= {"input_dim_idx": axis, "output_dim_idx": axis}
    out = _new(var, var.dtype)
    _block(var).append_op(
        "fill_constant_batch_size_like",
        inputs={"Input": var},
        outputs={"Out": out},
        attrs=attrs,
    )
    out.stop_gradient = True
    return out
