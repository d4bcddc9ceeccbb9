"""Small things that scripts ask of Paddle's native module: marks in names, sizes, its build."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from compiler.ir.types import DType

__all__ = [
    "AttrType", "avx_supported", "init_devices", "is_compiled_with_brpc", "is_compiled_with_dist",
    "is_compiled_with_mkldnn", "kControlDepVarName", "kEmptyVarName", "kGradVarSuffix",
    "kNewGradSuffix", "kTempVarName", "kZeroVarSuffix", "loaded_var_suffix", "set_num_threads",
    "size_of_dtype",
]  # fmt: skip


class AttrType(IntEnum):
    """Types of attributes, as `core.AttrType` names them."""

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOL = 6
    BOOLS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11


def kEmptyVarName() -> str:
    """The name of an argument that is left out."""
    return "@EMPTY@"


def kGradVarSuffix() -> str:
    """What follows a variable's name in that of its gradient."""
    return "@GRAD"


def kNewGradSuffix() -> str:
    """What follows the name of a gradient that is computed a second time."""
    return "@NEWGRAD@"


def kTempVarName() -> str:
    """The name of what nobody named."""
    return "@TEMP@"


def kZeroVarSuffix() -> str:
    """What follows the name of a gradient that is zeros."""
    return "@ZERO"


def kControlDepVarName() -> str:
    """What a variable is called that only orders ops."""
    return "__control_var"


def loaded_var_suffix() -> str:
    """What follows the name of a variable that a program loads."""
    return "@LOADED"


def size_of_dtype(dtype: Any) -> int:
    """Bytes of an element; TypeError for what is no element type.

    >>> size_of_dtype(5), size_of_dtype(3)
    (4, 8)
    """
    return DType.of(int(dtype)).numpy.itemsize


def is_compiled_with_mkldnn() -> bool:
    """False: kernels are generated here."""
    return False


def is_compiled_with_brpc() -> bool:
    """False: servers talk by gRPC."""
    return False


def is_compiled_with_dist() -> bool:
    """True: programs are trained by several processes."""
    return True


def avx_supported() -> bool:
    """True: NumPy chooses instructions by itself."""
    return True


def init_devices(parallel: bool = False) -> None:
    """Nothing is to be done: devices are found when a program runs on them."""


def set_num_threads(count: int) -> None:
    """Accepted and without effect: OMP_NUM_THREADS says how many threads NumPy's libraries take."""
