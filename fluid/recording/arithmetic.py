"""Python operators on variables: each appends the corresponding op, as in `math_op_patch.py`.

With a number, `+ - * /` become one `scale`; between variables they become `elementwise_*`, and
comparisons become `less_than` and so on. Results are called `tmp_0`, `tmp_1`, …
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

from compiler.support.tracebacks import entry_point
from fluid import unique_name
from fluid.recording.arguments import ArgumentError

Factors = Callable[[float], tuple[float, float]]
"""Maps a number to the equivalent (scale, bias)."""

_COMPARISONS = {"equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"}


def _operator(op_type: str, factors: Factors | None = None, *, swap: bool = False) -> Any:
    """Create a method that appends `op_type`, or one `scale` if the other operand is a number."""

    @entry_point
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, Real | Arithmetic):
            return NotImplemented
        exact = op_type != "elementwise_div" or self.element.is_float
        if factors and exact and isinstance(other, Real):
            return _scaled(self, *factors(_as_element(self, other)))
        other = _as_operand(self, other, whole=swap)
        x, y = (other, self) if swap else (self, other)
        return _appended(op_type, x, y)

    method.__doc__ = f"Append `{op_type}`."
    return method


class Arithmetic:
    """Operator overloads of a variable; a mixin of `fluid.framework.Variable`."""

    __add__ = __radd__ = _operator("elementwise_add", lambda number: (1.0, number))
    __sub__ = _operator("elementwise_sub", lambda number: (1.0, -number))
    __rsub__ = _operator("elementwise_sub", lambda number: (-1.0, number), swap=True)
    __mul__ = __rmul__ = _operator("elementwise_mul", lambda number: (number, 0.0))
    __truediv__ = _operator("elementwise_div", lambda number: (1.0 / number, 0.0))
    __rtruediv__ = _operator("elementwise_div", swap=True)
    __pow__ = _operator("elementwise_pow")
    __rpow__ = _operator("elementwise_pow", swap=True)
    __floordiv__ = _operator("elementwise_floordiv")
    __mod__ = _operator("elementwise_mod")
    __eq__ = _operator("equal")
    __ne__ = _operator("not_equal")
    __lt__ = _operator("less_than")
    __le__ = _operator("less_equal")
    __gt__ = _operator("greater_than")
    __ge__ = _operator("greater_equal")
    # `==` appends an op, so variables are hashed by identity.
    __hash__ = object.__hash__
    # NumPy scalars defer arithmetic with a variable to the variable.
    __array_ufunc__ = None

    def __neg__(self) -> Any:
        return _scaled(self, -1.0, 0.0)

    def astype(self, dtype: Any) -> Any:
        """Cast to another dtype (`cast`)."""
        return _cast(self, dtype)


def _block(var: Any) -> Any:
    return var.block.program.current_block()


def _new(var: Any, dtype: Any) -> Any:
    return _block(var).create_var(name=unique_name.generate("tmp"), dtype=dtype)


def _scaled(var: Any, scale: float, bias: float) -> Any:
    out = _new(var, var.dtype)
    attrs = {"scale": scale, "bias": bias}
    _block(var).append_op("scale", inputs={"X": var}, outputs={"Out": out}, attrs=attrs)
    return out


def _cast(var: Any, dtype: Any) -> Any:
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
    if isinstance(other, Arithmetic):
        return other if other.dtype == var.dtype else _cast(other, var.dtype)
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
