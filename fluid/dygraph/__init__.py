"""Eager mode, and layer objects: they own parameters, and calling them appends ops.

Within `guard()` ops run when their values are needed (`fluid.eager`); otherwise they are appended
to the default program. `base` has what enables eager mode, `layers` the base class of layers;
`convolutions`, `dense`, `norms` and `losses` have the layers, which `nn` re-exports, and
`container` lists of them; `learning_rate_scheduler`, `checkpoint`, `parallel` and `jit` are for
eager mode.
"""

from fluid.compat.missing import not_yet
from fluid.dygraph import backward_strategy as backward_strategy
from fluid.dygraph import base as base
from fluid.dygraph import checkpoint as checkpoint
from fluid.dygraph import container as container
from fluid.dygraph import jit as jit
from fluid.dygraph import layer_object_helper as layer_object_helper
from fluid.dygraph import layers as layers
from fluid.dygraph import learning_rate_scheduler as learning_rate_scheduler
from fluid.dygraph import nn as nn
from fluid.dygraph import parallel as parallel
from fluid.dygraph import static_runner as static_runner
from fluid.dygraph import tracer as tracer
from fluid.dygraph.backward_strategy import BackwardStrategy
from fluid.dygraph.base import (
    disable_dygraph,
    disable_imperative,
    enable_dygraph,
    enable_imperative,
    enabled,
    grad,
    guard,
    no_grad,
    to_variable,
)
from fluid.dygraph.checkpoint import load_dygraph, save_dygraph
from fluid.dygraph.container import LayerList, ParameterList, Sequential
from fluid.dygraph.jit import (
    ProgramTranslator,
    TracedLayer,
    declarative,
    dygraph_to_static_func,
)
from fluid.dygraph.layers import Layer
from fluid.dygraph.learning_rate_scheduler import (
    CosineDecay,
    ExponentialDecay,
    InverseTimeDecay,
    LambdaDecay,
    LinearLrWarmup,
    MultiStepDecay,
    NaturalExpDecay,
    NoamDecay,
    PiecewiseDecay,
    PolynomialDecay,
    ReduceLROnPlateau,
    StepDecay,
)
from fluid.dygraph.nn import (
    NCE,
    BatchNorm,
    BCELoss,
    BilinearTensorProduct,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
    Dropout,
    Embedding,
    GroupNorm,
    GRUUnit,
    InstanceNorm,
    L1Loss,
    LayerNorm,
    Linear,
    MSELoss,
    NLLLoss,
    Pool2D,
    PRelu,
    SpectralNorm,
    TreeConv,
)
from fluid.dygraph.parallel import DataParallel, ParallelEnv, prepare_context
from fluid.dygraph.static_runner import StaticModelRunner
from fluid.dygraph.tracer import Tracer

__all__ = [
    "BCELoss", "BackwardStrategy", "BatchNorm", "BilinearTensorProduct", "Conv2D",
    "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "CosineDecay", "DataParallel", "Dropout",
    "Embedding", "ExponentialDecay", "GRUUnit", "GroupNorm", "InstanceNorm", "InverseTimeDecay",
    "L1Loss", "LambdaDecay", "Layer", "LayerList", "LayerNorm", "Linear", "LinearLrWarmup",
    "MSELoss", "MultiStepDecay", "NCE", "NLLLoss", "NaturalExpDecay", "NoamDecay", "PRelu",
    "ParallelEnv", "ParameterList", "PiecewiseDecay", "PolynomialDecay", "Pool2D",
    "ProgramTranslator", "TracedLayer", "declarative", "dygraph_to_static_func",
    "ReduceLROnPlateau", "Sequential", "SpectralNorm", "StaticModelRunner", "StepDecay", "Tracer",
    "TreeConv", "disable_dygraph", "disable_imperative", "enable_dygraph", "enable_imperative",
    "enabled", "grad", "guard", "load_dygraph", "no_grad", "prepare_context", "save_dygraph",
    "to_variable",
]  # fmt: skip

__getattr__ = not_yet("fluid.dygraph", globals())
