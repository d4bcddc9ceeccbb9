"""Small constants and queries of Paddle's native module: name suffixes, sizes, build flags."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from enum import IntEnum
from typing import NoReturn

from compiler.errors import CompileError
from compiler.ir.types import DType
from fluid.compat.descs import ProgramDesc
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

__all__ = [
    "AttrType", "avx_supported", "get_fetch_variable", "init_devices", "init_gflags", "init_glog",
    "is_compiled_with_brpc", "start_imperative_gperf_profiler", "stop_imperative_gperf_profiler",
    "is_compiled_with_dist", "is_compiled_with_mkldnn", "kControlDepVarName", "kEmptyVarName",
    "kGradVarSuffix", "kNewGradSuffix", "kTempVarName", "kZeroVarSuffix", "loaded_var_suffix",
    "run_cmd", "save_op_compatible_info", "set_feed_variable", "set_num_threads", "size_of_dtype",
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

    def __str__(self) -> str:
        return f"AttrType.{self.name}"


def set_feed_variable(scope: Scope, tensor: LoDTensor, name: str, index: int) -> None:
    """Put a tensor at a place of a list of tensors of a scope, which grows as needed."""
    items = scope.var(name).get_lod_tensor_array()
    while len(items) <= index:
        items.append(LoDTensor())
    items[index] = tensor


def get_fetch_variable(scope: Scope, name: str, index: int) -> LoDTensor:
    """The tensor at a place of a list of tensors of a scope."""
    return scope.var(name).get_lod_tensor_array()[index]


def kEmptyVarName() -> str:
    """The name of an omitted argument."""
    return "@EMPTY@"


def kGradVarSuffix() -> str:
    """The suffix of gradient names."""
    return "@GRAD"


def kNewGradSuffix() -> str:
    """The suffix of a gradient that is computed a second time."""
    return "@NEWGRAD@"


def kTempVarName() -> str:
    """The name of unnamed variables."""
    return "@TEMP@"


def kZeroVarSuffix() -> str:
    """The suffix of gradients that are zero."""
    return "@ZERO"


def kControlDepVarName() -> str:
    """The name of variables that only order ops."""
    return "__control_var"


def loaded_var_suffix() -> str:
    """The suffix of variables that a program loads."""
    return "@LOADED"


def size_of_dtype(dtype: int) -> int:
    """Bytes of an element; raises TypeError for an invalid dtype.

    >>> size_of_dtype(5), size_of_dtype(3)
    (4, 8)
    """
    return DType.of(int(dtype)).numpy.itemsize


def is_compiled_with_mkldnn() -> bool:
    """False: kernels are generated here."""
    return False


def is_compiled_with_brpc() -> bool:
    """False: parameter servers use gRPC."""
    return False


def is_compiled_with_dist() -> bool:
    """True: distributed training is supported."""
    return True


def avx_supported() -> bool:
    """True: NumPy selects SIMD instructions itself."""
    return True


def init_devices(parallel: bool = False) -> None:
    """Do nothing: devices are initialised when a program first runs on them."""


def init_gflags(flags: Sequence[str]) -> None:
    """Accepted without effect: flags are read where they are used, see `set_flags`."""


def init_glog(program: str) -> None:
    """Accepted without effect: messages are Python's warnings and logs."""


def start_imperative_gperf_profiler() -> None:
    """Accepted without effect: `fluid.profiler` measures eager mode too."""


def stop_imperative_gperf_profiler() -> None:
    """Accepted without effect, as `start_imperative_gperf_profiler`."""


def set_num_threads(count: int) -> None:
    """Accepted without effect: OMP_NUM_THREADS sets the threads of NumPy's libraries."""


def run_cmd(cmd: str, time_out: int = -1, sleep_inter: int = -1) -> str:
    """Return what a shell command prints, whether or not it fails.

    The limits are accepted without effect: they are those of attempts to start a shell.

    >>> run_cmd("printf 1; exit 2")
    '1'
    """
    return subprocess.run(cmd, shell=True, stdout=subprocess.PIPE, text=True, check=False).stdout


def __unittest_throw_exception__() -> NoReturn:
    """Raise EnforceNotMet, for tests of how errors arrive."""
    raise CompileError("test exception")


def is_program_version_supported(version: int) -> bool:
    """Whether programs of this version of the format can be read: up to 0, or written by 1.x.

    >>> is_program_version_supported(0)
    True
    """
    return version >= 0


def set_fuse_parameter_group_size(count: int) -> None:
    """Accepted without effect: gradients are summed in buckets of a size chosen for the devices."""


def set_fuse_parameter_memory_size(megabytes: float) -> None:
    """Accepted without effect, as `set_fuse_parameter_group_size`."""


def save_op_compatible_info(desc: ProgramDesc) -> bool:
    """Return True: serialized programs always state which release their ops need.

    TypeError for anything but the description of a program.
    """
    if not isinstance(desc, ProgramDesc):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass programs
        raise TypeError(f"desc must be Program.desc, not {type(desc).__name__}")
    return True
