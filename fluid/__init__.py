"""The names of Paddle 1.x `fluid`: layers and optimizers record programs, an executor runs them."""

from fluid import (
    average,
    backward,
    clip,
    communicator,
    compiler,
    contrib,
    core,
    data_feeder,
    dataloader,
    dataset,
    dygraph,
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
    transpiler,
    unique_name,
)
from fluid.backward import gradients
from fluid.compatibility.as_paddle import install_as_paddle
from fluid.compatibility.installed import (
    disable_dygraph,
    disable_imperative,
    enable_dygraph,
    enable_imperative,
)
from fluid.compatibility.missing import not_yet
from fluid.compiler import BuildStrategy, CompiledProgram, ExecutionStrategy
from fluid.data import data
from fluid.data_feed_desc import DataFeedDesc as DataFeedDesc
from fluid.data_feeder import DataFeeder
from fluid.dataset import DatasetFactory, InMemoryDataset, QueueDataset
from fluid.dygraph.layers import Layer as Layer
from fluid.dygraph.nn import NCE as NCE
from fluid.dygraph.nn import BatchNorm as BatchNorm
from fluid.dygraph.nn import BCELoss as BCELoss
from fluid.dygraph.nn import BilinearTensorProduct as BilinearTensorProduct
from fluid.dygraph.nn import Conv2D as Conv2D
from fluid.dygraph.nn import Conv2DTranspose as Conv2DTranspose
from fluid.dygraph.nn import Conv3D as Conv3D
from fluid.dygraph.nn import Conv3DTranspose as Conv3DTranspose
from fluid.dygraph.nn import Dropout as Dropout
from fluid.dygraph.nn import Embedding as Embedding
from fluid.dygraph.nn import GroupNorm as GroupNorm
from fluid.dygraph.nn import GRUUnit as GRUUnit
from fluid.dygraph.nn import InstanceNorm as InstanceNorm
from fluid.dygraph.nn import L1Loss as L1Loss
from fluid.dygraph.nn import LayerNorm as LayerNorm
from fluid.dygraph.nn import Linear as Linear
from fluid.dygraph.nn import MSELoss as MSELoss
from fluid.dygraph.nn import NLLLoss as NLLLoss
from fluid.dygraph.nn import Pool2D as Pool2D
from fluid.dygraph.nn import PRelu as PRelu
from fluid.dygraph.nn import SpectralNorm as SpectralNorm
from fluid.dygraph.nn import TreeConv as TreeConv
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
from fluid.inference.packages import load_compiled
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
from fluid.transpiler import (
    DistributeTranspiler,
    DistributeTranspilerConfig,
    InferenceTranspiler,
    memory_optimize,
    release_memory,
)
from runtime.device import CPUPlace, CUDAPinnedPlace, CUDAPlace
from runtime.tensors.scope import Scope

Tensor = LoDTensor

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
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "ExecutionStrategy",
    "Executor",
    "InferenceTranspiler",
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
    "communicator",
    "compiler",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_predictor",
    "load_compiled",
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
    "dygraph",
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
    "memory_optimize",
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
    "release_memory",
    "require_version",
    "save",
    "scope_guard",
    "set_flags",
    "set_program_state",
    "transpiler",
    "unique_name",
]

__getattr__ = not_yet(__name__, globals())
