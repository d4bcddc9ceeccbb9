"""The public names of Paddle's native module: types, places, errors, predictors.

`fluid.core.VarDesc.VarType.FP32 == 5`: the numbers are those of `framework.proto`.
"""

from __future__ import annotations

from compiler.errors import CompileError
from compiler.ir.program import OpRole
from compiler.support.lazy_loading import lazy_names
from fluid.compat.descs import BlockDesc, OpDesc, ProgramDesc, VarDesc
from fluid.compat.inference.analysis import (
    AnalysisPredictor,
    NativePaddlePredictor,
    PaddlePredictor,
    create_paddle_predictor,
)
from fluid.compat.inference.analysis_config import (
    AnalysisConfig,
    NativeConfig,
    PaddlePassBuilder,
    PaddlePlace,
)
from fluid.compat.inference.paddle_tensor import (
    PaddleBuf,
    PaddleDType,
    PaddleTensor,
    ZeroCopyTensor,
    paddle_dtype_size,
)
from fluid.compat.installed import load_op_library
from fluid.compat.native_ops import (
    get_grad_op_desc,
    get_op_attrs_default_value,
    get_variable_tensor,
    has_grad_op_maker,
    has_infer_inplace,
    has_non_empty_grad_op_maker,
    infer_no_need_buffer_slots,
    op_support_gpu,
)
from fluid.core import native_names
from fluid.core.dlpack import from_dlpack
from fluid.core.native_names import (
    AttrType,
    avx_supported,
    get_fetch_variable,
    init_devices,
    init_gflags,
    init_glog,
    is_compiled_with_brpc,
    is_compiled_with_dist,
    is_compiled_with_mkldnn,
    kControlDepVarName,
    kEmptyVarName,
    kGradVarSuffix,
    kNewGradSuffix,
    kTempVarName,
    kZeroVarSuffix,
    loaded_var_suffix,
    run_cmd,
    save_op_compatible_info,
    set_feed_variable,
    set_num_threads,
    size_of_dtype,
    start_imperative_gperf_profiler,
    stop_imperative_gperf_profiler,
)
from fluid.core.native_protos import get_all_op_protos
from fluid.core.pslib_client import Fleet
from fluid.dataset.box_ps import BoxPS
from fluid.dataset.native import NativeDataset as Dataset
from fluid.lod_tensor import LoDTensor, LoDTensorArray
from fluid.recording.var_types import kind_of, var_type
from fluid.running.feed_checks import diff_tensor_shape
from fluid.running.flags import Flags
from fluid.running.places import Place, is_compiled_with_cuda
from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace
from runtime.gpu.cuda import gpu_count
from runtime.prefetching_reader import EOFException
from runtime.tensors.lod_tensor import LoDTensor as Tensor
from runtime.tensors.scope import Scope, Variable
from runtime.tensors.scope_values import SelectedRows

__all__ = [
    "AnalysisConfig",
    "AnalysisPredictor",
    "AttrType",
    "BlockDesc",
    "BoxPS",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "Dataset",
    "EOFException",
    "EnforceNotMet",
    "Fleet",
    "LoDTensor",
    "LoDTensorArray",
    "NativeConfig",
    "NativePaddlePredictor",
    "OpDesc",
    "PaddleBuf",
    "PaddleDType",
    "PaddlePassBuilder",
    "PaddlePlace",
    "PaddlePredictor",
    "PaddleTensor",
    "Place",
    "ProgramDesc",
    "Scope",
    "SelectedRows",
    "Tensor",
    "VarDesc",
    "Variable",
    "ZeroCopyTensor",
    "avx_supported",
    "create_paddle_predictor",
    "diff_tensor_shape",
    "empty_var_name",
    "from_dlpack",
    "get_all_op_protos",
    "get_cuda_device_count",
    "get_grad_op_desc",
    "get_op_attrs_default_value",
    "get_variable_tensor",
    "globals",
    "grad_var_suffix",
    "has_grad_op_maker",
    "has_infer_inplace",
    "has_non_empty_grad_op_maker",
    "infer_no_need_buffer_slots",
    "init_devices",
    "init_gflags",
    "init_glog",
    "is_compiled_with_brpc",
    "is_compiled_with_cuda",
    "is_compiled_with_dist",
    "is_compiled_with_mkldnn",
    "kControlDepVarName",
    "kEmptyVarName",
    "kGradVarSuffix",
    "kNewGradSuffix",
    "kTempVarName",
    "kZeroVarSuffix",
    "kind_of",
    "load_op_library",
    "loaded_var_suffix",
    "op_proto_and_checker_maker",
    "get_fetch_variable",
    "op_support_gpu",
    "paddle_dtype_size",
    "run_cmd",
    "save_op_compatible_info",
    "set_feed_variable",
    "set_num_threads",
    "size_of_dtype",
    "start_imperative_gperf_profiler",
    "stop_imperative_gperf_profiler",
    "var_type",
]


_Scope = Scope
__unittest_throw_exception__ = native_names.__unittest_throw_exception__
_is_program_version_supported = native_names.is_program_version_supported
_set_fuse_parameter_group_size = native_names.set_fuse_parameter_group_size
_set_fuse_parameter_memory_size = native_names.set_fuse_parameter_memory_size
EnforceNotMet = CompileError
"""The error the reference raises for programs that cannot run; here, the base of our own errors."""


class _Roles:
    """The values of `op_role` under their names in scripts."""

    Forward = OpRole.FORWARD
    Backward = OpRole.BACKWARD
    Optimize = OpRole.OPTIMIZE
    RPC = OpRole.RPC
    Dist = OpRole.DIST
    LRSched = OpRole.LRSCHED
    Loss = OpRole.LOSS


class op_proto_and_checker_maker:
    """The names of attributes that every op has, and the roles that ops play."""

    OpRole = _Roles

    @staticmethod
    def kOpRoleAttrName() -> str:
        """The attribute that holds the role."""
        return "op_role"

    @staticmethod
    def kOpRoleVarAttrName() -> str:
        """The attribute with alternating parameter and gradient names."""
        return "op_role_var"

    @staticmethod
    def kOpNameScopeAttrName() -> str:
        """The attribute that holds the name scope."""
        return "op_namescope"

    @staticmethod
    def kOpCreationCallstackAttrName() -> str:
        """The attribute with the call stack of the script that created the op."""
        return "op_callstack"

    @staticmethod
    def kOpDeviceAttrName() -> str:
        """The attribute that holds the device of `device_guard`."""
        return "op_device"


def globals() -> Flags:
    """All flags as a mapping, readable and assignable."""
    return Flags()


def grad_var_suffix() -> str:
    """The suffix of gradient names."""
    return "@GRAD"


def empty_var_name() -> str:
    """The name of an omitted argument."""
    return "@EMPTY@"


def _set_eager_deletion_mode(threshold: float, fraction: float, use_cuda: bool) -> None:  # pyright: ignore[reportUnusedFunction]
    """Accepted and without effect: memory is planned before a program runs."""


def get_cuda_device_count() -> int:
    """Number of GPUs that programs can run on: those that torch finds."""
    return gpu_count()


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fluid.compat.graphs": (
            "Graph Node Pass PassBuilder build_adjacency_list get_pass graph_num "
            "graph_safe_remove_nodes has_circle topology_sort"
        ),
        "fluid.core.gloo": "Gloo",
        "fluid.core.profiling": (
            "EventSortingKey ProfilerState TracerOption disable_profiler enable_profiler "
            "is_profiler_enabled kAll kAllOpDetail kAve kCPU kCUDA kCalls kDefault kDisabled kMax "
            "kMin kOpDetail kTotal reset_profiler set_tracer_option"
        ),
        "fluid.core.op_functions": "ops",
        "fluid.dygraph.backward_strategy": "BackwardStrategy",
        "fluid.dygraph.layers": "Layer",
        "fluid.eager.tracers": "Tracer",
        "fluid.eager.variables": "VarBase",
    },
)
