"""The names of Paddle's native module that programs use: types, places, errors, predictors.

`fluid.core.VarDesc.VarType.FP32 == 5`: the numbers are those of saved files (fluid_spec G.3).
"""

from __future__ import annotations

from compiler.errors import CompileError
from fluid.analysis import (
    AnalysisPredictor,
    NativePaddlePredictor,
    PaddlePredictor,
    create_paddle_predictor,
)
from fluid.analysis_config import AnalysisConfig, NativeConfig, PaddlePassBuilder, PaddlePlace
from fluid.lod_tensor import LoDTensor, LoDTensorArray
from fluid.paddle_tensor import (
    PaddleBuf,
    PaddleDType,
    PaddleTensor,
    ZeroCopyTensor,
    paddle_dtype_size,
)
from fluid.places import is_compiled_with_cuda
from fluid.var_types import VarDesc, kind_of, var_type
from runtime.cuda import gpu_count
from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace
from runtime.reader import EOFException
from runtime.scope import Scope

__all__ = [
    "AnalysisConfig",
    "AnalysisPredictor",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "EOFException",
    "EnforceNotMet",
    "LoDTensor",
    "LoDTensorArray",
    "NativeConfig",
    "NativePaddlePredictor",
    "PaddleBuf",
    "PaddleDType",
    "PaddlePassBuilder",
    "PaddlePlace",
    "PaddlePredictor",
    "PaddleTensor",
    "Scope",
    "VarDesc",
    "ZeroCopyTensor",
    "create_paddle_predictor",
    "get_cuda_device_count",
    "is_compiled_with_cuda",
    "kind_of",
    "paddle_dtype_size",
    "var_type",
]


EnforceNotMet = CompileError
"""What the reference raises where a program can not be run as it stands; here, our own errors."""


def get_cuda_device_count() -> int:
    """How many GPUs programs can run on: those that torch finds."""
    return gpu_count()
