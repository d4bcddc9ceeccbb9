"""Formats a tensor as text, as release 1.8.5 prints it."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.types import Array

_NAMES = {
    "float32": "float",
    "float64": "double",
    "float16": "::paddle::platform::float16",
    "int32": "int",
    "bool": "bool",
}
"""The C++ names of dtypes; the others are the dtype name with the suffix `_t`."""


def tensor_text(array: Array, lod: Sequence[Sequence[int]]) -> str:
    """Format LoD, shape, dtype and all elements, a line each.

    >>> import numpy as np
    >>> print(tensor_text(np.array([[0.5, 1 / 3]], np.float32), [[0, 1]]).expandtabs(2), end="")
      lod: {{0, 1}}
      dim: 1, 2
      layout: NCHW
      dtype: float
      data: [0.5 0.333333]
    """
    levels = "".join("{" + ", ".join(map(str, level)) + "}" for level in lod)
    name = _NAMES.get(array.dtype.name, f"{array.dtype.name}_t")
    fields = {
        "lod": "{" + levels + "}",
        "dim": ", ".join(map(str, array.shape)),
        "layout": "NCHW",
        "dtype": name,
        "data": "[" + " ".join(map(number_text, array.reshape(-1).tolist())) + "]",
    }
    return "".join(f"\t{field}: {text}\n" for field, text in fields.items())


def number_text(number: float) -> str:
    """Format a number as C++ does: floats with six digits, bools as 0 and 1."""
    return f"{number:g}" if isinstance(number, float) else f"{number:d}"
