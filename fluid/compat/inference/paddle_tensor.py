"""Tensors of release 1.8.5 predictors: `PaddleTensor`, `PaddleBuf`, `ZeroCopyTensor`.

They hold float32, int64 and int32. The reference silently converts other dtypes to int32, so
that float64 loses its fraction; here only small integers are converted, without loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import cast

import numpy as np

from compiler.ir.types import Array
from runtime.errors import FeedError, LodError, NotInitialized
from runtime.tensors.lod_tensor import LoDTensor

__all__ = [
    "PaddleBuf",
    "PaddleDType",
    "PaddleTensor",
    "ZeroCopyTensor",
    "fed",
    "paddle_dtype_size",
]


class PaddleDType(IntEnum):
    """The dtypes, with the reference's numbers."""

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype."""
        return np.dtype(self.name.lower())


_OF_NUMPY = {dtype.numpy: dtype for dtype in PaddleDType}
_NOTHING = np.zeros(0, np.float32)


def paddle_dtype_size(dtype: PaddleDType) -> int:
    """Bytes of an element.

    >>> paddle_dtype_size(PaddleDType.INT64)
    8
    """
    return PaddleDType(dtype).numpy.itemsize


def _dtype_of(element: np.dtype[np.generic]) -> PaddleDType:
    """The enum value of a dtype; raises TypeError if it has none, such as bool and float64."""
    if element not in _OF_NUMPY:
        raise TypeError(f"{element} has no PaddleDType: look at the array itself")
    return _OF_NUMPY[element]


def _elements(given: object, what: str) -> Array:
    """The array in row-major order, with small integers as int32."""
    if not isinstance(given, np.ndarray):
        raise TypeError(f"{what} takes a NumPy array, not {type(given).__name__}")
    data = cast(Array, given)
    if data.dtype.kind in "biu" and data.dtype.itemsize <= 2:
        return np.ascontiguousarray(data, np.int32)
    if data.dtype not in _OF_NUMPY:
        wanted = "float32" if data.dtype.kind == "f" else "int64"
        names = ", ".join(map(str, _OF_NUMPY))
        raise TypeError(f"{what} takes {names}, not {data.dtype}: give data.astype({wanted!r})")
    return np.ascontiguousarray(data)


def _bytes_of(array: Array) -> Array:
    """A view of the bytes of an array in row-major order."""
    return array.reshape(-1).view(np.uint8)


class PaddleBuf:
    """A byte buffer: zeros of a given length, or the bytes of numbers (a list of floats, an array).

    >>> PaddleBuf([1.0, 2.0]).length()
    8
    """

    def __init__(self, data: int | Sequence[float] | Array) -> None:
        self._bytes = np.zeros(0, np.uint8)
        if isinstance(data, int):
            self.resize(data)
        else:
            self.reset(data)

    def reset(self, data: Sequence[float] | Array) -> None:
        """Replace the contents by a list of floats, or an array of float32, int64 or int32."""
        if isinstance(data, list | tuple):
            data = np.array(data, np.float32)
        self._bytes = _bytes_of(_elements(data, "a PaddleBuf").copy())

    @staticmethod
    def over(array: Array) -> PaddleBuf:
        """A buffer over an array of any dtype, without a copy."""
        buffer = PaddleBuf(0)
        buffer._bytes = _bytes_of(array)
        return buffer

    def resize(self, length: int) -> None:
        """Grow to at least this many bytes, filled with zeros."""
        if length > self.length():
            self._bytes = np.zeros(length, np.uint8)

    def empty(self) -> bool:
        """Whether the buffer is empty."""
        return not self.length()

    def length(self) -> int:
        """Length in bytes."""
        return self._bytes.nbytes

    def float_data(self) -> list[float]:
        """The bytes as float32."""
        return cast(list[float], self.tolist("float32"))

    def int64_data(self) -> list[int]:
        """The bytes as int64."""
        return cast(list[int], self.tolist("int64"))

    def int32_data(self) -> list[int]:
        """The bytes as int32."""
        return cast(list[int], self.tolist("int32"))

    def tolist(self, dtype: str) -> list[int] | list[float]:
        """The bytes as `float32`, `int64` or `int32`; ValueError for another name."""
        if dtype not in map(str, _OF_NUMPY):
            raise ValueError(
                f"a PaddleBuf converts to {', '.join(map(str, _OF_NUMPY))}, not {dtype!r}"
            )
        return self.elements(np.dtype(dtype)).tolist()

    def elements(self, dtype: np.dtype[np.generic]) -> Array:
        """The elements that fit into the buffer, without a copy."""
        return self._bytes[: self.length() // dtype.itemsize * dtype.itemsize].view(dtype)


class PaddleTensor:
    """A tensor of `PaddlePredictor.run`; all attributes may be set.

    `lod` are offsets, a list for each level; `copy=False` uses the passed array itself.

    >>> tensor = PaddleTensor(np.zeros((5, 1), "int64"), "words", [[0, 2, 5]])
    >>> tensor.name, tensor.shape, tensor.dtype.name, tensor.data.length()
    ('words', [5, 1], 'INT64', 40)
    """

    def __init__(
        self, data: Array | None = None, name: str = "", lod: Sequence[Sequence[int]] = (),
        copy: bool = True,
    ) -> None:  # fmt: skip
        array = _NOTHING if data is None else _elements(data, "a PaddleTensor")
        self.name = name
        self.lod = [list(level) for level in lod]
        self.shape = [] if data is None else list(array.shape)
        self.data = PaddleBuf.over(array.copy() if copy else array)
        self._element = array.dtype

    @staticmethod
    def result(name: str, value: Array | LoDTensor) -> PaddleTensor:
        """A tensor of a result, in its own dtype."""
        result = PaddleTensor(name=name, lod=value.lod() if isinstance(value, LoDTensor) else ())
        array = np.ascontiguousarray(value)
        result.shape, result.data, result._element = (
            list(array.shape),
            PaddleBuf.over(array),
            array.dtype,
        )
        return result

    @property
    def dtype(self) -> PaddleDType:
        """The dtype; raises TypeError for a result whose dtype has no enum value."""
        return _dtype_of(self._element)

    @dtype.setter
    def dtype(self, dtype: PaddleDType) -> None:
        self._element = PaddleDType(dtype).numpy

    def as_ndarray(self) -> Array:
        """A copy of the elements in its shape; raises FeedError if their number does not match."""
        elements = self.data.elements(self._element)
        if elements.size != math.prod(self.shape):
            raise FeedError(
                f"PaddleTensor {self.name!r} has the shape {self.shape}, but {elements.size} "
                f"elements of {self._element}"
            )
        return elements.reshape(self.shape).copy()


class ZeroCopyTensor:
    """A named input or output of one predictor, set from and read into arrays.

    `copy_from_cpu` and `copy_to_cpu` copy, as in the reference on a CPU.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._array: Array | None = None
        self._lod: list[list[int]] = []
        self._shape = [0]

    def reshape(self, shape: Sequence[int]) -> None:
        """Change the shape; values are kept if their number does not change, else discarded."""
        fits = self._array is not None and self._array.size == math.prod(shape)
        self._array = self._array.reshape(shape) if self._array is not None and fits else None
        self._shape = list(shape)

    def copy_from_cpu(self, data: Array) -> None:
        """Copy values and shape from an array of float32, int64 or int32."""
        self.hold(_elements(data, f"copy_from_cpu of {self._name!r}").copy())

    def copy_to_cpu(self) -> Array:
        """A copy of the values; raises NotInitialized if there are none yet."""
        return self._values().copy()

    def shape(self) -> list[int]:
        """The shape; [0] before values are set."""
        return list(self._shape)

    def lod(self) -> list[list[int]]:
        """The LoD offsets, a list for each level."""
        return [list(level) for level in self._lod]

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set LoD offsets; they are checked against the values when the model runs."""
        self._lod = [list(level) for level in lod]

    def type(self) -> PaddleDType:
        """The dtype; raises NotInitialized if there are no values yet."""
        return _dtype_of(self._values().dtype)

    def hold(self, array: Array) -> None:
        """Use an array without a copy."""
        self._array, self._shape = array, list(array.shape)

    def fed(self) -> Array | LoDTensor:
        """The value to feed; raises LodError if the offsets do not match the values."""
        return _tensor(self._name, self._values(), self._lod)

    def _values(self) -> Array:
        if self._array is None:
            hint = "an input is set by copy_from_cpu, an output by a run"
            raise NotInitialized(f"tensor {self._name!r} has no values yet", hint=hint)
        return self._array


def fed(tensor: PaddleTensor) -> Array | LoDTensor:
    """The feed for a tensor; raises LodError if its offsets do not match."""
    return _tensor(tensor.name, tensor.as_ndarray(), tensor.lod)


def _tensor(name: str, array: Array, lod: list[list[int]]) -> Array | LoDTensor:
    if not lod:
        return array
    tensor = LoDTensor(array)
    try:
        tensor.set_lod(lod)
    except LodError as error:
        error.add_note(f"  in tensor {name!r}")
        raise
    return tensor
