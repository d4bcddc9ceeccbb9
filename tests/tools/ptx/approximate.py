"""Approximate instructions: the exact result, and how far PTX lets one be from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tests.tools.ptx.arithmetic import div, finished, rcp, sqrt
from tests.tools.ptx.floats import F32, F64, Format, Model


@dataclass(frozen=True)
class Tolerance:
    """Allowed errors: relative, in units of the last place, or absolute; any one suffices."""

    relative: float = 0.0
    ulps: int = 0
    absolute: float = 0.0

    def admits(self, fmt: Format, expected: int, got: int) -> bool:
        if fmt.is_nan(expected) or fmt.is_nan(got):
            return fmt.is_nan(expected) and fmt.is_nan(got)
        if fmt.is_infinite(expected) or fmt.is_infinite(got):
            return expected == got
        if not (fmt.magnitude(expected) or fmt.magnitude(got)):
            return expected == got or self.absolute > 0
        want, actual = fmt.value(expected), fmt.value(got)
        near = abs(want - actual) <= max(abs(want) * self.relative, self.absolute)
        same_sign = (expected ^ got) & fmt.sign == 0
        return near or (
            same_sign and abs(fmt.magnitude(expected) - fmt.magnitude(got)) <= self.ulps
        )


LAST = 2.0**-24
"""Half a unit in the last place: the rounding of what is compared with."""

Real = Callable[[float], float]


def of_double(function: Real, ftz: bool) -> Model:
    """A function in double precision, rounded to f32."""

    def run(a: int) -> int:
        if F32.is_nan(a):
            return F32.nan
        return _to_f32(_quietly(function, _to_float(a)))

    return finished(F32, run, ftz, False)


def _quietly(function: Real, number: float) -> float:
    try:
        return function(number)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _to_float(bits: int) -> float:
    sign = -1.0 if F32.is_negative(bits) else 1.0
    if F32.is_infinite(bits):
        return sign * math.inf
    return math.copysign(float(F32.value(bits)), sign)


def _to_f32(number: float) -> int:
    if math.isnan(number):
        return F32.nan
    sign = F32.sign if math.copysign(1.0, number) < 0 else 0
    if math.isinf(number):
        return F32.infinity | sign
    ratio = number.as_integer_ratio()
    return F32.rounded(Fraction(*ratio), "rn", sign)


def _log2(a: float) -> float:
    return -math.inf if a == 0 else math.log2(a)


def _rsqrt(a: float) -> float:
    return math.copysign(math.inf, a) if a == 0 else 1 / math.sqrt(a)


def _div_approx(ftz: bool) -> Model:
    """`a * (1 / b)`: open where 1 / b is subnormal, that is |b| > 2^126."""
    whole = div(F32, "rn", ftz)

    def run(a: int, b: int) -> int | None:
        far = F32.magnitude(b) > 0x7E800000 and not F32.is_infinite(b)
        near = 0 < F32.magnitude(b) < 0x00800000
        return None if (far or near) and not F32.is_nan(b) else whole(a, b)

    return finished(F32, run, ftz, False)


def _rcp_f64(a: int) -> int | None:
    """The upper half of 1 / a; a subnormal operand counts as 0, what becomes of such a result is open."""
    bits = rcp(F64)(F64.flushed(a))
    return None if bits is None or F64.is_subnormal(bits) else bits


def approximation(name: str) -> tuple[Model, Tolerance]:
    """The model and the tolerance of `ex2.approx.ftz.f32` and the like."""
    root, *modifiers, kind = name.split(".")
    ftz = "ftz" in modifiers
    if name == "rcp.approx.ftz.f64":
        return _rcp_f64, Tolerance(relative=2.0**-19)
    if kind != "f32" or not {"approx", "full"} & set(modifiers):
        raise KeyError(name)
    if root == "div" and "full" in modifiers:
        return finished(F32, div(F32, "rn", ftz), ftz, False), Tolerance(ulps=2)
    results = {
        "div": lambda: (_div_approx(ftz), Tolerance(ulps=2)),
        "rcp": lambda: (
            finished(F32, rcp(F32, "rn", ftz), ftz, False),
            Tolerance(2.0**-23 + LAST, 1),
        ),
        "sqrt": lambda: (finished(F32, sqrt(F32), ftz, False), Tolerance(2.0**-23 + LAST, 1)),
        "rsqrt": lambda: (of_double(_rsqrt, ftz), Tolerance(2.0**-22.9 + LAST)),
        "ex2": lambda: (of_double(lambda a: 2.0**a, ftz), Tolerance(2.0**-22.5 + LAST, 2)),
        "lg2": lambda: (of_double(_log2, ftz), Tolerance(2.0**-22 + LAST, 0, 2.0**-22)),
        "sin": lambda: (of_double(math.sin, ftz), Tolerance(0, 0, 2.0**-20.5)),
        "cos": lambda: (of_double(math.cos, ftz), Tolerance(0, 0, 2.0**-20.5)),
        "tanh": lambda: (of_double(math.tanh, ftz), Tolerance(2.0**-11, 1)),
    }
    return results[root]()
