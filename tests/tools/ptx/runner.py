"""The one place that calls the PTX machine, and how its results are compared."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.tools.ptx.floats import FORMATS
from tests.tools.ptx.forms import Form
from tests.tools.ptx.instruction_text import THREADS, form_kernel
from tests.tools.ptx.operands import tuples, width
from tools.ptx import execute as run

Array = NDArray[np.generic]


def execute(
    text: str, arrays: Sequence[Array], blocks: int = 1, shared: int = 0, threads: int = THREADS
) -> None:
    """Run the only kernel of a text on arrays, which it changes, with so many shared bytes."""
    run(text, "one", blocks, threads, list(arrays), shared=shared)


def column(values: Sequence[int], kind: str = "u4") -> Array:
    """Values as an array, of 32-bit words unless told otherwise."""
    return np.array(values, kind)


def disagreements(form: Form) -> list[str]:
    """Operands for which the machine's result is not the model's, as text."""
    inputs = tuples(form)
    columns = [
        np.array([row[place] for row in inputs], f"u{width(kind) // 8}")
        for place, kind in enumerate(form.operands)
    ]
    result = np.zeros(len(inputs), f"u{width(form.result) // 8}")
    execute(form_kernel(form), [result, *columns], len(inputs) // THREADS)
    actual = ((row, form.model(*row), int(got)) for row, got in zip(inputs, result, strict=True))
    return [_said(form, *each) for each in actual if not agrees(form, each[1], each[2])]


def _said(form: Form, row: tuple[int, ...], expected: int | None, got: int) -> str:
    return f"{form.name} {', '.join(map(hex, row))}: expected {expected:#x}, got {got:#x}"


def agrees(form: Form, expected: int | None, got: int) -> bool:
    """Whether a result is one that PTX allows."""
    if expected is not None and form.tolerance and form.format:
        return form.tolerance.admits(form.format, expected, got)
    return agrees_as(form.result, expected, got)


def agrees_as(kind: str, expected: int | None, got: int) -> bool:
    """Whether bits are those of a kind that are expected; any NaN stands for any other."""
    if expected is None or expected == got:
        return True
    if kind.endswith("x2"):
        half = kind.removesuffix("x2")
        pairs = ((expected & 0xFFFF, got & 0xFFFF), (expected >> 16, got >> 16))
        return all(agrees_as(half, *pair) for pair in pairs)
    if kind == "tf32":  # the low bits of a register with tf32 have no meaning
        expected, got = expected >> 13, got >> 13
    fmt = FORMATS.get(kind)
    return expected == got or (fmt is not None and fmt.is_nan(expected) and fmt.is_nan(got))
