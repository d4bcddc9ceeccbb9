"""Where the machine does not yet agree with PTX; each test is a strict xfail, and fails once the machine does."""

from collections.abc import Iterable, Mapping

import pytest
from _pytest.mark import ParameterSet

from tests.ptx.forms import Form

_ZERO = "rounding down, a product of +0 is +0, and a sum of 0 from opposite terms is -0"
_OVERFLOW = "a finite product too large for f64 plus an infinity of the other sign is that infinity"
_NAN = (
    "of a signalling NaN and a number in registers that all threads share, the number is the result"
)

BY_THREAD: Mapping[str, str] = {
    "fma.rm.f32": _ZERO,
    "mul.rm.f64": _ZERO,
    "fma.rn.f64": _OVERFLOW,
    "fma.rp.f64": _OVERFLOW,
    "rcp.approx.ftz.f64": "a subnormal operand counts as 0",
}
"""Forms with operands that differ by thread, and the result that PTX defines."""

SHARED: Mapping[str, str] = {
    "mul.rm.f64": _ZERO,
    "min.ftz.f32": _NAN,
    "min.f16": _NAN,
    "min.f16x2": _NAN,
    "min.bf16x2": _NAN,
}
"""Forms with operands that all threads share."""


def marked(forms: Iterable[Form], wrong: Mapping[str, str]) -> list[ParameterSet]:
    """The forms as parameters of a test, with those that disagree expected to fail."""
    return [
        pytest.param(
            form,
            id=f"{form.name}{form.text[15:]}",
            marks=[pytest.mark.xfail(reason=wrong[form.name], raises=AssertionError)]
            if form.name in wrong
            else [],
        )
        for form in forms
    ]
