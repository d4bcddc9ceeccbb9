"""The API of Paddle 1.x `fluid`: layers and optimizers build programs, an executor runs them.

Most modules are loaded when a script first uses one of their names: a process that serves a saved
model needs neither layers nor optimizers, which would take longer to load than the model.
"""

from fluid.cli.commands.interrupts import exit_on_interrupts

try:
    exit_on_interrupts()
    from compiler.support.lazy_loading import lazy_names
    from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace
except ModuleNotFoundError as error:
    package = (error.name or "").partition(".")[0]
    if package not in ("compiler", "runtime"):
        raise
    raise ImportError(
        f"fluid needs its own package {package!r}, and another one of this name is found first: "
        f"rename that, or move it out of the folders of sys.path ({error})",
        name=error.name,
    ) from None
from fluid import framework
from fluid.compat.missing import not_yet
from fluid.data import data
from fluid.framework import (
    Program,
    Variable,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    default_main_program,
    default_startup_program,
    device_guard,
    get_flags,
    in_dygraph_mode,
    is_compiled_with_cuda,
    load_op_library,
    name_scope,
    program_guard,
    require_version,
    set_flags,
)
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Scope

Tensor = LoDTensor
_Scope = Scope

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "LoDTensor",
    "Program",
    "Scope",
    "Tensor",
    "Variable",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "framework",
    "get_flags",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "load_op_library",
    "name_scope",
    "program_guard",
    "require_version",
    "set_flags",
]

_EXPORTED_LATER = (
    "BuildStrategy CompiledProgram DataFeeder DatasetFactory InMemoryDataset QueueDataset "
    "ExecutionStrategy Executor LoDTensorArray ParallelExecutor ParamAttr Predictor "
    "WeightNormParamAttr average backward clip compiler core create_lod_tensor create_predictor "
    "create_random_int_lodtensor data_feeder dataset dataloader disable_dygraph "
    "disable_imperative embedding enable_dygraph enable_imperative evaluator executor "
    "global_scope gradients initializer install_as_paddle io layers load load_program_state "
    "lod_tensor metrics nets one_hot optimizer parallel_executor param_attr profiler reader "
    "regularizer save scope_guard set_program_state unique_name DistributeTranspiler "
    "DistributeTranspilerConfig InferenceTranspiler communicator contrib dygraph load_compiled "
    "load_dygraph memory_optimize release_memory save_dygraph transpiler"
)

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fluid": (
            "average backward clip communicator compiler contrib core data_feed_desc data_feeder "
            "data_parallel dataloader dataset dygraph eager evaluator executor inference "
            "initializer input io layers lod_tensor metrics nets optimizer parallel_executor "
            "param_attr parameter_server profiler reader reading regularizer saving transpiler "
            "unique_name"
        ),
        "fluid.backward": "gradients",
        "fluid.compat.as_paddle": "install_as_paddle",
        "fluid.compiler": "BuildStrategy CompiledProgram ExecutionStrategy",
        "fluid.data_feed_desc": "DataFeedDesc",
        "fluid.data_feeder": "DataFeeder",
        "fluid.dataset": "DatasetFactory InMemoryDataset QueueDataset",
        "fluid.eager.complex_variable": "ComplexVariable",
        "fluid.eager.mode": "disable_dygraph disable_imperative enable_dygraph enable_imperative",
        "fluid.executor": "Executor global_scope scope_guard",
        "fluid.inference.predictor": "Predictor create_predictor",
        "fluid.input": "embedding one_hot",
        "fluid.io": "load load_program_state save set_program_state",
        "fluid.lod_tensor": "LoDTensorArray create_lod_tensor create_random_int_lodtensor",
        "fluid.parallel_executor": "ParallelExecutor",
        "fluid.param_attr": "ParamAttr WeightNormParamAttr",
        "fluid.inference.packages": "load_compiled",
        "fluid.dygraph.checkpoint": "load_dygraph save_dygraph",
        "fluid.dygraph.layers": "Layer",
        "fluid.dygraph.nn": (
            "NCE BatchNorm BCELoss BilinearTensorProduct Conv2D Conv2DTranspose Conv3D "
            "Conv3DTranspose Dropout Embedding GroupNorm GRUUnit InstanceNorm L1Loss LayerNorm "
            "Linear MSELoss NLLLoss Pool2D PRelu SpectralNorm TreeConv"
        ),
        "fluid.transpiler": (
            "DistributeTranspiler DistributeTranspilerConfig InferenceTranspiler memory_optimize "
            "release_memory"
        ),
    },
    otherwise=not_yet(__name__, dict.fromkeys([*globals(), *__all__, *_EXPORTED_LATER.split()])),
    exported=_EXPORTED_LATER,
)

# Graphs and eager mode import `framework`, so it cannot load their names itself.
framework.__getattr__ = lazy_names(
    framework.__name__,
    {
        "fluid.compat.graphs": "IrGraph IrNode IrOpNode IrVarNode",
        "fluid.eager.complex_variable": "ComplexVariable",
        "fluid.eager.tracers": (
            "_current_expected_place _dygraph_guard _dygraph_not_support_ _dygraph_only_ "
            "_dygraph_place_guard _dygraph_tracer _fake_interface_only_ _var_base_to_np "
            "_varbase_creator dygraph_not_support dygraph_only fake_interface_only"
        ),
        "fluid.eager.variables": "ParamBase",
    },
)[0]
