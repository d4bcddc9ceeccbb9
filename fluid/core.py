"""The few names of Paddle's native module that programs use: types, places, errors of a run.

`fluid.core.VarDesc.VarType.FP32 == 5`: the numbers are those of saved files (fluid_spec G.3).
"""

from __future__ import annotations

from compiler.errors import CompileError
from fluid.lod_tensor import LoDTensor, LoDTensorArray
from fluid.places import is_compiled_with_cuda
from fluid.var_types import VarDesc, kind_of, var_type
from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace
from runtime.scope import Scope

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "LoDTensor",
    "LoDTensorArray",
    "Scope",
    "VarDesc",
    "get_cuda_device_count",
    "is_compiled_with_cuda",
    "kind_of",
    "var_type",
]


EnforceNotMet = CompileError
"""What the reference raises where a program can not be run as it stands; here, our own errors."""


class EOFException(Exception):
    """A reader that the program reads from has no next batch: `reset` it, and `start` it anew."""


def get_cuda_device_count() -> int:
    """How many GPUs programs can run on: none in this version."""
    return 0
