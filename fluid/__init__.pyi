"""The names of `fluid` for type checkers and editors: at run time most are loaded at first use."""

from fluid import (
    average as average,
)
from fluid import (
    backward as backward,
)
from fluid import (
    clip as clip,
)
from fluid import (
    communicator as communicator,
)
from fluid import (
    compiler as compiler,
)
from fluid import (
    contrib as contrib,
)
from fluid import (
    core as core,
)
from fluid import (
    data_feed_desc as data_feed_desc,
)
from fluid import (
    data_feeder as data_feeder,
)
from fluid import (
    data_parallel as data_parallel,
)
from fluid import (
    dataloader as dataloader,
)
from fluid import (
    dataset as dataset,
)
from fluid import (
    dygraph as dygraph,
)
from fluid import (
    eager as eager,
)
from fluid import (
    evaluator as evaluator,
)
from fluid import (
    executor as executor,
)
from fluid import (
    framework as framework,
)
from fluid import (
    inference as inference,
)
from fluid import (
    initializer as initializer,
)
from fluid import (
    input as input,
)
from fluid import (
    io as io,
)
from fluid import (
    layers as layers,
)
from fluid import (
    lod_tensor as lod_tensor,
)
from fluid import (
    metrics as metrics,
)
from fluid import (
    nets as nets,
)
from fluid import (
    optimizer as optimizer,
)
from fluid import (
    parallel_executor as parallel_executor,
)
from fluid import (
    param_attr as param_attr,
)
from fluid import (
    parameter_server as parameter_server,
)
from fluid import (
    profiler as profiler,
)
from fluid import (
    reader as reader,
)
from fluid import (
    reading as reading,
)
from fluid import (
    regularizer as regularizer,
)
from fluid import (
    saving as saving,
)
from fluid import (
    transpiler as transpiler,
)
from fluid import (
    unique_name as unique_name,
)
from fluid.backward import (
    gradients as gradients,
)
from fluid.compat.as_paddle import (
    install_as_paddle as install_as_paddle,
)
from fluid.compiler import (
    BuildStrategy as BuildStrategy,
)
from fluid.compiler import (
    CompiledProgram as CompiledProgram,
)
from fluid.compiler import (
    ExecutionStrategy as ExecutionStrategy,
)
from fluid.data import (
    data as data,
)
from fluid.data_feed_desc import (
    DataFeedDesc as DataFeedDesc,
)
from fluid.data_feeder import (
    DataFeeder as DataFeeder,
)
from fluid.dataset import (
    DatasetFactory as DatasetFactory,
)
from fluid.dataset import (
    InMemoryDataset as InMemoryDataset,
)
from fluid.dataset import (
    QueueDataset as QueueDataset,
)
from fluid.dygraph.checkpoint import (
    load_dygraph as load_dygraph,
)
from fluid.dygraph.checkpoint import (
    save_dygraph as save_dygraph,
)
from fluid.dygraph.layers import (
    Layer as Layer,
)
from fluid.dygraph.nn import (
    NCE as NCE,
)
from fluid.dygraph.nn import (
    BatchNorm as BatchNorm,
)
from fluid.dygraph.nn import (
    BCELoss as BCELoss,
)
from fluid.dygraph.nn import (
    BilinearTensorProduct as BilinearTensorProduct,
)
from fluid.dygraph.nn import (
    Conv2D as Conv2D,
)
from fluid.dygraph.nn import (
    Conv2DTranspose as Conv2DTranspose,
)
from fluid.dygraph.nn import (
    Conv3D as Conv3D,
)
from fluid.dygraph.nn import (
    Conv3DTranspose as Conv3DTranspose,
)
from fluid.dygraph.nn import (
    Dropout as Dropout,
)
from fluid.dygraph.nn import (
    Embedding as Embedding,
)
from fluid.dygraph.nn import (
    GroupNorm as GroupNorm,
)
from fluid.dygraph.nn import (
    GRUUnit as GRUUnit,
)
from fluid.dygraph.nn import (
    InstanceNorm as InstanceNorm,
)
from fluid.dygraph.nn import (
    L1Loss as L1Loss,
)
from fluid.dygraph.nn import (
    LayerNorm as LayerNorm,
)
from fluid.dygraph.nn import (
    Linear as Linear,
)
from fluid.dygraph.nn import (
    MSELoss as MSELoss,
)
from fluid.dygraph.nn import (
    NLLLoss as NLLLoss,
)
from fluid.dygraph.nn import (
    Pool2D as Pool2D,
)
from fluid.dygraph.nn import (
    PRelu as PRelu,
)
from fluid.dygraph.nn import (
    SpectralNorm as SpectralNorm,
)
from fluid.dygraph.nn import (
    TreeConv as TreeConv,
)
from fluid.eager.complex_variable import (
    ComplexVariable as ComplexVariable,
)
from fluid.eager.mode import (
    disable_dygraph as disable_dygraph,
)
from fluid.eager.mode import (
    disable_imperative as disable_imperative,
)
from fluid.eager.mode import (
    enable_dygraph as enable_dygraph,
)
from fluid.eager.mode import (
    enable_imperative as enable_imperative,
)
from fluid.executor import (
    Executor as Executor,
)
from fluid.executor import (
    global_scope as global_scope,
)
from fluid.executor import (
    scope_guard as scope_guard,
)
from fluid.framework import (
    Program as Program,
)
from fluid.framework import (
    Variable as Variable,
)
from fluid.framework import (
    cpu_places as cpu_places,
)
from fluid.framework import (
    cuda_pinned_places as cuda_pinned_places,
)
from fluid.framework import (
    cuda_places as cuda_places,
)
from fluid.framework import (
    default_main_program as default_main_program,
)
from fluid.framework import (
    default_startup_program as default_startup_program,
)
from fluid.framework import (
    device_guard as device_guard,
)
from fluid.framework import (
    get_flags as get_flags,
)
from fluid.framework import (
    in_dygraph_mode as in_dygraph_mode,
)
from fluid.framework import (
    is_compiled_with_cuda as is_compiled_with_cuda,
)
from fluid.framework import (
    load_op_library as load_op_library,
)
from fluid.framework import (
    name_scope as name_scope,
)
from fluid.framework import (
    program_guard as program_guard,
)
from fluid.framework import (
    require_version as require_version,
)
from fluid.framework import (
    set_flags as set_flags,
)
from fluid.inference.packages import (
    load_compiled as load_compiled,
)
from fluid.inference.predictor import (
    Predictor as Predictor,
)
from fluid.inference.predictor import (
    create_predictor as create_predictor,
)
from fluid.input import (
    embedding as embedding,
)
from fluid.input import (
    one_hot as one_hot,
)
from fluid.io import (
    load as load,
)
from fluid.io import (
    load_program_state as load_program_state,
)
from fluid.io import (
    save as save,
)
from fluid.io import (
    set_program_state as set_program_state,
)
from fluid.lod_tensor import (
    LoDTensorArray as LoDTensorArray,
)
from fluid.lod_tensor import (
    create_lod_tensor as create_lod_tensor,
)
from fluid.lod_tensor import (
    create_random_int_lodtensor as create_random_int_lodtensor,
)
from fluid.parallel_executor import (
    ParallelExecutor as ParallelExecutor,
)
from fluid.param_attr import (
    ParamAttr as ParamAttr,
)
from fluid.param_attr import (
    WeightNormParamAttr as WeightNormParamAttr,
)
from fluid.transpiler import (
    DistributeTranspiler as DistributeTranspiler,
)
from fluid.transpiler import (
    DistributeTranspilerConfig as DistributeTranspilerConfig,
)
from fluid.transpiler import (
    InferenceTranspiler as InferenceTranspiler,
)
from fluid.transpiler import (
    memory_optimize as memory_optimize,
)
from fluid.transpiler import (
    release_memory as release_memory,
)
from runtime.device import (
    CPUPlace as CPUPlace,
)
from runtime.device import (
    CUDAPinnedPlace as CUDAPinnedPlace,
)
from runtime.device import (
    CUDAPlace as CUDAPlace,
)
from runtime.tensors.lod_tensor import (
    LoDTensor as LoDTensor,
)
from runtime.tensors.scope import (
    Scope as Scope,
)

Tensor = LoDTensor

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
    "BuildStrategy",
    "CompiledProgram",
    "DataFeeder",
    "DatasetFactory",
    "InMemoryDataset",
    "QueueDataset",
    "ExecutionStrategy",
    "Executor",
    "LoDTensorArray",
    "ParallelExecutor",
    "ParamAttr",
    "Predictor",
    "WeightNormParamAttr",
    "average",
    "backward",
    "clip",
    "compiler",
    "core",
    "create_lod_tensor",
    "create_predictor",
    "create_random_int_lodtensor",
    "data_feeder",
    "dataset",
    "dataloader",
    "disable_dygraph",
    "disable_imperative",
    "embedding",
    "enable_dygraph",
    "enable_imperative",
    "evaluator",
    "executor",
    "global_scope",
    "gradients",
    "initializer",
    "install_as_paddle",
    "io",
    "layers",
    "load",
    "load_program_state",
    "lod_tensor",
    "metrics",
    "nets",
    "one_hot",
    "optimizer",
    "parallel_executor",
    "param_attr",
    "profiler",
    "reader",
    "regularizer",
    "save",
    "scope_guard",
    "set_program_state",
    "unique_name",
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "InferenceTranspiler",
    "communicator",
    "contrib",
    "dygraph",
    "load_compiled",
    "load_dygraph",
    "memory_optimize",
    "release_memory",
    "save_dygraph",
    "transpiler",
]
