"""What release 1.8.5 lets scripts do with the elements of a tensor beside `set`: sizes first, then
memory; single elements; parts of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Self, cast

import numpy as np
from numpy.typing import DTypeLike

from compiler.ir.types import Array, DType
from runtime.device import CPUPlace, Place


class ElementAccess:
    """Methods of `LoDTensor` over its array; the class has `array`, `adopt` and `shape`.

    `_alloc_*` and `_mutable_data` make zeros of the sizes that `_set_dims` was given.
    """

    array: Any
    adopt: Any
    shape: Any
    _dims: tuple[int, ...] | None = None

    def __getitem__(self, key: Any) -> Self:
        """A copy of a part, with as many axes: a number counts as a slice of size 1.

        Raises IndexError for a number that is out of range.
        """
        keys = cast("tuple[Any, ...]", key if isinstance(key, tuple) else (key,))
        values = self._values()
        slices = tuple(map(_as_slice, keys, values.shape[: len(keys)]))
        part = type(self)()
        part.adopt(np.array(values[slices], order="C"))
        return part

    def _values(self) -> Array:
        if self.array is None:
            raise ValueError("the tensor is empty: call set first")
        return self.array

    # Sizes and memory

    def _set_dims(self, dims: Sequence[int]) -> None:
        """Choose sizes; memory for them is taken by `_alloc_*` or `_mutable_data`."""
        self._dims = tuple(map(int, dims))

    def _get_dims(self) -> list[int]:
        """The sizes that were chosen, or those it has."""
        return self.shape() if self._dims is None else list(self._dims)

    def _alloc_int(self, place: Place) -> None:
        """Make zeros of int32."""
        self._allocate("int32")

    def _alloc_float(self, place: Place) -> None:
        """Make zeros of float32."""
        self._allocate("float32")

    def _alloc_double(self, place: Place) -> None:
        """Make zeros of float64."""
        self._allocate("float64")

    def _mutable_data(self, place: Place, dtype: Any) -> int:
        """Make zeros of an element type, as `VarType` has them; the address of the first."""
        self._allocate(DType.of(int(dtype)).numpy)
        return int(self._values().ctypes.data)

    def _allocate(self, dtype: DTypeLike) -> None:
        self.adopt(np.zeros(self._get_dims(), dtype))
        self._dims = None

    def _share_data_with(self, other: ElementAccess) -> None:
        """Have the same elements as another tensor, in the same memory."""
        self.adopt(other._values())

    def _place(self) -> Place:
        """Where its elements are read and written."""
        return CPUPlace()

    # Single elements, counted through all axes

    def _get_float_element(self, offset: int) -> float:
        """One element."""
        return float(self._values().flat[offset])

    def _set_float_element(self, offset: int, value: float) -> None:
        """Change one element."""
        self._values().flat[offset] = value

    _get_double_element = _get_float_element
    _set_double_element = _set_float_element


def _as_slice(key: Any, size: int) -> Any:
    """The key itself where it is a slice; IndexError for a number that is out of range."""
    if isinstance(key, slice):
        return cast(Any, key)
    number: int = range(size)[index(key)]
    return slice(number, number + 1)
