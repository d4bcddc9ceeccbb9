"""The addresses of arrays' elements, which kernels are given."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

DATA = object.__basicsize__
"""Where NumPy's array object has the address of its elements: behind the head of every object."""


def documented_address(array: Any) -> int:
    """The address of an array's elements, by the documented interface, in a microsecond."""
    return int(array.__array_interface__["data"][0])


def read_address(array: Any) -> int:
    """The address of an array's elements, read from NumPy's object in memory."""
    return ctypes.c_int64.from_address(id(array) + DATA).value


def _finds_addresses() -> bool:
    """Whether `read_address` is right, with this Python and this NumPy."""
    arrays = [np.zeros(3), np.zeros((2, 5), np.int8)[1:], np.zeros(0)]
    return all(read_address(array) == documented_address(array) for array in arrays)


address = read_address if _finds_addresses() else documented_address
