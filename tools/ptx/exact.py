"""Float64 arithmetic in any rounding mode by exact fractions: slow, for the cases that are rare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import copysign, prod
from typing import Any

import numpy as np

from tools.ptx.group import Value


def _add(a: Any, b: Any) -> Any:
    return a + b


def _subtract(a: Any, b: Any) -> Any:
    return a - b


def _multiply(a: Any, b: Any) -> Any:
    return a * b


def _divide(a: Any, b: Any) -> Any:
    return a / b


def _fma(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": _add, "sub": _subtract, "mul": _multiply, "div": _divide, "fma": _fma,
}  # fmt: skip


def by_fractions(name: str, mode: str, *parts: Value) -> Value:
    """add, sub, mul, div or fma of float64, rounded once (rn, rz, rm, rp)."""
    arrays = np.broadcast_arrays(*parts)
    rows: Any = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    results = [_one(name, mode, row) for row in rows]
    return np.array(results, "f8").reshape(arrays[0].shape)[()]


def _one(name: str, mode: str, values: Sequence[float]) -> float:
    function = _FUNCTIONS[name]
    plain = float(function(*map(np.float64, values)))
    if name == "fma" and np.isinf(values[2]) and np.isfinite(values[:2]).all():
        return values[2]
    divides_by_zero = name == "div" and values[1] == 0
    if not np.isfinite(values).all() or divides_by_zero:
        return plain
    exact = function(*map(Fraction, values))
    return _rounded(exact, mode) if exact else _zero(name, mode, plain, values)


def _zero(name: str, mode: str, plain: float, values: Sequence[float]) -> float:
    """Zero with its sign: a sum is −0 when rounding down, unless both terms are +0."""
    if mode != "rm" or name not in ("add", "sub", "fma"):
        return plain
    *factors, last = values
    terms = prod(factors), -last if name == "sub" else last
    return -0.0 if any(copysign(1, term) < 0 for term in terms) else 0.0


def _rounded(exact: Fraction, mode: str) -> float:
    nearest = _nearest(exact)
    over = nearest == np.inf or (np.isfinite(nearest) and Fraction(nearest) > exact)
    under = nearest == -np.inf or (np.isfinite(nearest) and Fraction(nearest) < exact)
    if over and (mode == "rm" or (mode == "rz" and exact > 0)):
        return float(np.nextafter(nearest, -np.inf))
    if under and (mode == "rp" or (mode == "rz" and exact < 0)):
        return float(np.nextafter(nearest, np.inf))
    return nearest


def _nearest(exact: Fraction) -> float:
    try:
        nearest = float(exact)
    except OverflowError:
        return float(np.inf if exact > 0 else -np.inf)
    return nearest if nearest else float(np.copysign(0.0, 1 if exact > 0 else -1))
