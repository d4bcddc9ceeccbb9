"""Element types and tensor types."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from compiler.errors import CompileError
from compiler.ir.dims import UNKNOWN, Dim, Size, evaluate, product
from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass
from compiler.support.extras import install

Shape: TypeAlias = tuple[Size, ...]
"""Sizes from the outermost axis inwards; each is a number or a `Dim`."""

Array: TypeAlias = NDArray[Any]
"""A NumPy array of any element type."""


class VarTypeId(IntEnum):
    """`VarType.Type`: tensor dtypes and, from 7 to 18, variable kinds; BF16 is newer.

    They print as in the reference, since scripts compare and print them.

    >>> str(VarTypeId.FP32), f"{VarTypeId.FP32}", [VarTypeId.FP32]
    ('VarType.FP32', 'VarType.FP32', [VarType.FP32])
    """

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT8 = 20
    INT8 = 21
    BF16 = 22

    __hash__ = int.__hash__
    """That of the number, which a member equals: that of `Enum` is a call in Python."""

    def __repr__(self) -> str:
        return f"VarType.{self.name}"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class DType(Enum):
    """An element type: its name in `.ir` text and its number in `VarType.Type`."""

    BOOL = ("bool", 0)
    INT16 = ("i16", 1)
    INT32 = ("i32", 2)
    INT64 = ("i64", 3)
    FP16 = ("f16", 4)
    FP32 = ("f32", 5)
    FP64 = ("f64", 6)
    UINT8 = ("u8", 20)
    INT8 = ("i8", 21)
    BF16 = ("bf16", 22)
    TOKEN = ("token", -1)

    def __init__(self, text: str, code: int) -> None:
        self.text = text
        self.code = code

    __hash__ = object.__hash__
    """By identity, as members are compared: that of `Enum` is a call in Python."""

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of the same name: `FP32` → `float32`.

        NumPy has no bfloat16. Raises CompileError if ml_dtypes, which adds it, is not installed.
        """
        dtype = _NUMPY.get(self)
        if dtype is None:
            text = f"NumPy has no {self.numpy_name}: it needs ml_dtypes, which is not installed"
            raise CompileError(text, hint=install("native"))
        return dtype

    @property
    def numpy_name(self) -> str:
        """The name of the NumPy dtype, whether or not NumPy has it: `BF16` → `bfloat16`."""
        return _NUMPY_NAMES[self]

    @property
    def is_in_numpy(self) -> bool:
        """True if there is a NumPy dtype of the same name."""
        return self in _NUMPY

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes; 0 for a token, which has no data."""
        return 0 if self is DType.TOKEN else self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """True for floating-point types, which have gradients."""
        return self in FLOATS

    @staticmethod
    def of(value: DTypeLike | int | DType) -> DType:
        """Return the type for a NumPy dtype, its name (`'float32'`), or a `VarType.Type` number.

        Raises TypeError if fluid has no such type.

        >>> DType.of("float32"), DType.of(3).text
        (<DType.FP32: ('f32', 5)>, 'i64')
        """
        if isinstance(value, DType):
            return value
        dtype = _BY_CODE.get(value) if isinstance(value, int) else _by_name(value)
        if dtype is None:
            raise TypeError(f"{value!r} is not an element type fluid has: {', '.join(_BY_NAME)}")
        return dtype


FLOATS = frozenset({DType.FP16, DType.BF16, DType.FP32, DType.FP64})
"""The floating-point types, which have gradients."""

HALVES = frozenset({DType.FP16, DType.BF16})
"""The half-precision types: stored in two bytes, computed with in float32."""

_NUMPY_NAMES = {
    DType.BOOL: "bool",
    DType.INT16: "int16",
    DType.INT32: "int32",
    DType.INT64: "int64",
    DType.FP16: "float16",
    DType.FP32: "float32",
    DType.FP64: "float64",
    DType.UINT8: "uint8",
    DType.INT8: "int8",
    DType.BF16: "bfloat16",
}
_ML_DTYPES: Any = import_module("ml_dtypes") if find_spec("ml_dtypes") else None
"""The package that adds bfloat16 to NumPy; None if it is not installed."""
_NUMPY = {dtype: np.dtype(name) for dtype, name in _NUMPY_NAMES.items() if name != "bfloat16"}
if _ML_DTYPES is not None:
    _NUMPY[DType.BF16] = np.dtype(_ML_DTYPES.bfloat16)
_FLOATING = frozenset(_NUMPY[dtype] for dtype in FLOATS if dtype in _NUMPY)
_BY_CODE = {dtype.code: dtype for dtype in _NUMPY_NAMES}
_BY_NAME = {name: dtype for dtype, name in _NUMPY_NAMES.items()}
_BY_TEXT = {dtype.text: dtype for dtype in DType}


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Return whether a NumPy dtype is a float or bfloat16, whose `kind` is not "f" in NumPy.

    >>> is_floating(np.dtype("float16")), is_floating(DType.BF16.numpy), is_floating(np.dtype(int))
    (True, True, False)
    """
    return dtype.kind == "f" or dtype in _FLOATING


def lowest(dtype: DType) -> float:
    """Return the lowest finite number of a float type.

    >>> lowest(DType.FP16), lowest(DType.BF16)
    (-65504.0, -3.3895313892515355e+38)
    """
    finfo: Any = _ML_DTYPES.finfo if dtype is DType.BF16 else np.finfo
    return float(finfo(dtype.numpy).min)


def _by_name(value: DTypeLike) -> DType | None:
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]  # NumPy knows not every name
    try:
        return _BY_NAME.get(np.dtype(value).name)
    except (TypeError, ValueError):
        return None


def parse_dtype(text: str) -> DType:
    """Parse an element type of `.ir` text: `f32`, `i64`, `bool` …; ValueError for anything else."""
    if text not in _BY_TEXT:
        raise ValueError(f"{text!r} is not an element type: {', '.join(_BY_TEXT)}")
    return _BY_TEXT[text]


@dataclass(frozen=True)
class TensorType:
    """The element type and shape of a value; `is_array` for a tensor array with such elements.

    >>> print(TensorType(DType.FP32, (Dim.named("N"), 4)))
    f32[N, 4]
    >>> print(TensorType(DType.FP32, (UNKNOWN, 4), is_array=True))
    f32[?, 4]*
    """

    dtype: DType
    shape: Shape
    is_array: bool = False

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @cached_property
    def numel(self) -> Size:
        """The number of elements."""
        return product(self.shape)

    @cached_property
    def nbytes(self) -> Size:
        """The size of its data in bytes; unknown for a tensor array."""
        return UNKNOWN if self.is_array else self.numel * self.dtype.itemsize

    @cached_property
    def is_open(self) -> bool:
        """True if the size is data-dependent, so that its memory cannot be planned."""
        return self.is_array or any(isinstance(n, Dim) and not n.known for n in self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols in its shape, sorted."""
        names = {name for size in self.shape if isinstance(size, Dim) for name in size.names}
        return tuple(sorted(names))

    def with_shape(self, shape: Sequence[Size]) -> TensorType:
        """Return the type with another shape."""
        return TensorType(self.dtype, tuple(shape), self.is_array)

    def with_dtype(self, dtype: DType) -> TensorType:
        """Return the type with another element type."""
        return TensorType(dtype, self.shape, self.is_array)

    def at(self, values: dict[str, int]) -> tuple[int, ...]:
        """Evaluate the shape for given symbol values."""
        return tuple(evaluate(size, values) for size in self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.text}[{', '.join(map(str, self.shape))}]" + "*" * self.is_array


TOKEN = TensorType(DType.TOKEN, ())
"""The type of a var that only orders two ops and has no data."""

SAVED = TensorType(DType.TOKEN, (), is_array=True)
"""The type of the values that the iterations of a block save for its gradient: a list of values."""


def type_of(array: Array) -> TensorType:
    """Return the type of an array."""
    return TensorType(DType.of(array.dtype), array.shape)


def from_fluid(shape: Sequence[int], dtype: DType) -> TensorType:
    """Convert a fluid shape, where -1 means unknown, to a type."""
    return TensorType(dtype, tuple(UNKNOWN if size < 0 else int(size) for size in shape))


def to_fluid(shape: Shape) -> tuple[int, ...]:
    """Convert a shape to fluid's: -1 for every symbolic size."""
    return tuple(size if isinstance(size, int) else -1 for size in shape)
