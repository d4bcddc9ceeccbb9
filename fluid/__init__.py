"""The API of Paddle 1.x `fluid`: layers and optimizers build programs, an executor runs them."""

from compiler.support.lazy_loading import lazy_names
from fluid import (
    average,
    backward,
    clip,
    compiler,
    core,
    data_feeder,
    dataloader,
    dataset,
    evaluator,
    executor,
    framework,
    initializer,
    io,
    layers,
    lod_tensor,
    metrics,
    nets,
    optimizer,
    parallel_executor,
    param_attr,
    profiler,
    reader,
    regularizer,
    unique_name,
)
from fluid.backward import gradients
from fluid.compat.as_paddle import install_as_paddle
from fluid.compat.missing import not_yet
from fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluid.data import data
from fluid.data_feed_desc import DataFeedDesc as DataFeedDesc
from fluid.data_feeder import DataFeeder
from fluid.dataset import DatasetFactory, InMemoryDataset, QueueDataset
from fluid.eager.complex_variable import ComplexVariable as ComplexVariable
from fluid.eager.mode import (
    disable_dygraph,
    disable_imperative,
    enable_dygraph,
    enable_imperative,
)
from fluid.executor import Executor, global_scope, scope_guard
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
from fluid.inference.predictor import Predictor, create_predictor
from fluid.input import embedding, one_hot
from fluid.io import load, load_program_state, save, set_program_state
from fluid.lod_tensor import (
    LoDTensor,
    LoDTensorArray,
    create_lod_tensor,
    create_random_int_lodtensor,
)
from fluid.parallel_executor import ParallelExecutor
from fluid.param_attr import ParamAttr, WeightNormParamAttr
from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace
from runtime.tensors.scope import Scope

Tensor = LoDTensor
_Scope = Scope

__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "DataFeeder",
    "DatasetFactory",
    "InMemoryDataset",
    "QueueDataset",
    "ExecutionStrategy",
    "Executor",
    "LoDTensor",
    "LoDTensorArray",
    "ParallelExecutor",
    "ParamAttr",
    "Predictor",
    "Program",
    "Scope",
    "Tensor",
    "Variable",
    "WeightNormParamAttr",
    "average",
    "backward",
    "clip",
    "compiler",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_predictor",
    "create_random_int_lodtensor",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "data_feeder",
    "dataset",
    "dataloader",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "disable_dygraph",
    "disable_imperative",
    "embedding",
    "enable_dygraph",
    "enable_imperative",
    "evaluator",
    "executor",
    "framework",
    "get_flags",
    "global_scope",
    "gradients",
    "in_dygraph_mode",
    "initializer",
    "install_as_paddle",
    "io",
    "is_compiled_with_cuda",
    "layers",
    "load",
    "load_op_library",
    "load_program_state",
    "lod_tensor",
    "metrics",
    "name_scope",
    "nets",
    "one_hot",
    "optimizer",
    "parallel_executor",
    "param_attr",
    "profiler",
    "program_guard",
    "reader",
    "regularizer",
    "require_version",
    "save",
    "scope_guard",
    "set_flags",
    "set_program_state",
    "unique_name",
]

_EXPORTED_LATER = (
    "DistributeTranspiler DistributeTranspilerConfig InferenceTranspiler communicator contrib "
    "dygraph load_compiled load_dygraph memory_optimize release_memory save_dygraph transpiler"
)

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fluid": "communicator contrib data_parallel dygraph parameter_server transpiler",
        "fluid.inference.packages": "load_compiled",
        "fluid.dygraph.checkpoint": "load_dygraph save_dygraph",
        "fluid.dygraph.layers": "Layer",
        "fluid.dygraph.nn": (
            "NCE BatchNorm BCELoss BilinearTensorProduct Conv2D Conv2DTranspose Conv3D "
            "Conv3DTranspose Dropout Embedding GroupNorm GRUUnit InstanceNorm L1Loss "
            "LayerNorm Linear MSELoss NLLLoss Pool2D PRelu SpectralNorm TreeConv"
        ),
        "fluid.transpiler": (
            "DistributeTranspiler DistributeTranspilerConfig InferenceTranspiler memory_optimize "
            "release_memory"
        ),
    },
    otherwise=not_yet(__name__, dict.fromkeys([*globals(), *__all__, *_EXPORTED_LATER.split()])),
    exported=_EXPORTED_LATER,
)

# Graphs import `framework`, so it cannot load their names itself.
framework.__getattr__ = lazy_names(
    framework.__name__, {"fluid.compat.graphs": "IrGraph IrNode IrOpNode IrVarNode"}
)[0]
