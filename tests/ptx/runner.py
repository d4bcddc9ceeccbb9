"""The one place that calls the PTX machine, and how its results are compared."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.ptx.forms import Form
from tests.ptx.operands import tuples, width
from tests.ptx.text import THREADS, form_kernel

Array = NDArray[np.generic]


def execute(text: str, arrays: Sequence[Array], blocks: int = 1) -> None:
    """Run the only kernel of a text on arrays, which it changes."""
    raise NotImplementedError


def disagreements(form: Form) -> list[str]:
    """Operands for which the machine's result is not the model's, as text."""
    given = tuples(form)
    columns = [
        np.array([row[place] for row in given], f"u{width(kind) // 8}")
        for place, kind in enumerate(form.operands)
    ]
    result = np.zeros(len(given), f"u{width(form.result) // 8}")
    execute(form_kernel(form), [result, *columns], len(given) // THREADS)
    found = ((row, form.model(*row), int(got)) for row, got in zip(given, result, strict=True))
    return [_said(form, *each) for each in found if not agrees(form, each[1], each[2])]


def _said(form: Form, row: tuple[int, ...], expected: int | None, got: int) -> str:
    return f"{form.name} {', '.join(map(hex, row))}: expected {expected:#x}, got {got:#x}"


def agrees(form: Form, expected: int | None, got: int) -> bool:
    """Whether a result is one that PTX allows; any NaN stands for any other."""
    if expected is None or expected == got:
        return True
    fmt = form.format
    if fmt is None:
        return _halves_agree(form, expected, got)
    if form.result == "tf32":  # the low bits of a register with tf32 have no meaning
        return expected >> 13 == got >> 13 or (fmt.is_nan(expected >> 13) and fmt.is_nan(got >> 13))
    if form.tolerance:
        return form.tolerance.admits(fmt, expected, got)
    return fmt.is_nan(expected) and fmt.is_nan(got)


def _halves_agree(form: Form, expected: int, got: int) -> bool:
    half = form.half
    if half is None:
        return False
    pairs = ((expected & 0xFFFF, got & 0xFFFF), (expected >> 16, got >> 16))
    return all(a == b or (half.is_nan(a) and half.is_nan(b)) for a, b in pairs)
