"""What is fetched converts to a number where it is one, as it did in the NumPy of release 1.8."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["OneValue", "number_like"]


class OneValue(np.ndarray):
    """An array of one element, as a loss is, that may stand wherever a number may.

    Scripts say `"%f" % loss` and `float(loss)` of a loss of shape [1], which NumPy from 2.4 on
    refuses for all arrays that have a dimension. Sums and products of such arrays are alike.

    >>> loss = number_like(np.array([0.25], np.float32))
    >>> float(loss), "%.1f" % (loss * 2), int(loss), loss
    (0.25, '0.5', 0, array([0.25], dtype=float32))
    """

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if return_scalar:
            return array[()]
        return array.view(type(self) if array.size == 1 else np.ndarray)


def number_like(value: Any) -> Any:
    """An array of one element and of one dimension or more as a `OneValue`; others as they are.

    >>> number_like(np.zeros(2))
    array([0., 0.])
    """
    if isinstance(value, np.ndarray) and value.size == 1 and value.ndim:
        return value.view(OneValue)
    return value
