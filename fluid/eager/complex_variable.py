"""Complex variables of eager mode: a variable each for the real and the imaginary part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.ir.types import Array
from fluid.recording.variable import Variable

__all__ = ["ComplexVariable"]


class ComplexVariable:
    """The pair of a real and an imaginary part; `to_variable` makes it of a complex array.

    Raises AssertionError unless both parts have the same shape and dtype, float32 or float64.
    """

    def __init__(self, real: Variable, imag: Variable) -> None:
        assert real.shape == imag.shape, f"parts of the shapes {real.shape} and {imag.shape}"
        assert real.dtype == imag.dtype, f"parts of the types {real.dtype} and {imag.dtype}"
        self.real = real
        self.imag = imag

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.real.shape

    @property
    def dtype(self) -> str:
        """`complex64` for parts of float32, `complex128` for float64."""
        return str(np.result_type(self.real.element.numpy, np.complex64))

    @property
    def name(self) -> dict[str, str]:
        """The names of the parts: `real` and `imag`."""
        return {"real": self.real.name, "imag": self.imag.name}

    @name.setter
    def name(self, name: str | tuple[str, str] | list[str] | Mapping[str, str]) -> None:
        """Rename the parts: to `NAME.real` and `NAME.imag`, or to a pair, or by part.

        Raises ValueError for anything else.
        """
        if isinstance(name, str):
            self.real.name, self.imag.name = f"{name}.real", f"{name}.imag"
        elif isinstance(name, Mapping) and {*name} == {"real", "imag"}:
            self.real.name, self.imag.name = name["real"], name["imag"]
        elif isinstance(name, tuple | list) and len(name) == 2:
            self.real.name, self.imag.name = name
        else:
            raise ValueError(f"a name is text, a pair or a dict of real and imag, not {name!r}")

    def numpy(self) -> Array:
        """Compute the value and return it as an array of `dtype`."""
        real, imag = (np.asarray(part.numpy()) for part in (self.real, self.imag))
        return real + 1j * imag

    def __str__(self) -> str:
        return f"REAL: {self.real}IMAG: {self.imag}"

    __repr__ = __str__
