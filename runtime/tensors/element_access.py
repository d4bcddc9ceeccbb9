"""Element access to tensors, as in release 1.8.5: allocation by dims, single elements, slices."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Self, cast

import numpy as np
from numpy.typing import DTypeLike

from compiler.ir.types import Array, DType
from runtime.device import CPUPlace, Place


class ElementAccess:
    """Methods of `LoDTensor` over its array; the class has `read`, `adopt`, `expose` and more.

    `_alloc_*` and `_mutable_data` create zeros of the dims passed to `_set_dims`.
    """

    read: Any
    adopt: Any
    shape: Any
    expose: Any
    note_write: Any
    _dims: tuple[int, ...] | None = None

    def __getitem__(self, key: Any) -> Self:
        """Copy a slice, keeping the rank: an index counts as a slice of size 1.

        Raises IndexError for an index that is out of range.
        """
        keys = cast("tuple[Any, ...]", key if isinstance(key, tuple) else (key,))
        values = self._values()
        slices = tuple(map(_as_slice, keys, values.shape[: len(keys)]))
        part = type(self)()
        part.adopt(np.array(values[slices], order="C"), is_own=True)
        return part

    def _values(self) -> Array:
        if (array := self.read()) is None:
            raise ValueError("the tensor is empty: call set first")
        return array

    # Dims and memory

    def _set_dims(self, dims: Sequence[int]) -> None:
        """Set the dims; memory for them is allocated by `_alloc_*` or `_mutable_data`."""
        self._dims = tuple(map(int, dims))

    def _get_dims(self) -> list[int]:
        """The dims that were set, or the actual ones."""
        return self.shape() if self._dims is None else list(self._dims)

    def _alloc_int(self, place: Place) -> None:
        """Allocate zeros of int32."""
        self._allocate("int32")

    def _alloc_float(self, place: Place) -> None:
        """Allocate zeros of float32."""
        self._allocate("float32")

    def _alloc_double(self, place: Place) -> None:
        """Allocate zeros of float64."""
        self._allocate("float64")

    def _mutable_data(self, place: Place, dtype: Any) -> int:
        """Allocate zeros of a `VarType` dtype; return the address of the first element."""
        self._allocate(DType.of(int(dtype)).numpy)
        self.expose()
        return int(self._values().ctypes.data)

    def _allocate(self, dtype: DTypeLike) -> None:
        self.adopt(np.zeros(self._get_dims(), dtype), is_own=True)
        self._dims = None

    def _share_data_with(self, other: ElementAccess) -> None:
        """Share the memory of another tensor."""
        other.expose()
        self.adopt(other._values())

    def _place(self) -> Place:
        """The place of its elements."""
        return CPUPlace()

    # Single elements, by flat index

    def _get_float_element(self, offset: int) -> float:
        """Return one element."""
        return float(self._values().flat[offset])

    def _set_float_element(self, offset: int, value: float) -> None:
        """Set one element."""
        self._values().flat[offset] = value
        self.note_write()

    _get_double_element = _get_float_element
    _set_double_element = _set_float_element


def _as_slice(key: Any, size: int) -> Any:
    """Convert an index to a slice; IndexError if it is out of range."""
    if isinstance(key, slice):
        return cast(Any, key)
    number: int = range(size)[index(key)]
    return slice(number, number + 1)
