"""Layer objects: they own parameters, and calling them appends ops to a program.

In release 1.8.5 these are layers of dygraph mode, which can also be used in static-graph mode. Only
the latter is supported: nothing is executed eagerly, so `guard` and `to_variable` raise. `layers`
has the base class, `convolutions`, `dense`, `norms` and `losses` the layers, which `nn` re-exports,
and `container` lists of them.
"""

from fluid.compat.missing import not_yet
from fluid.dygraph import base, container, layer_object_helper, layers, nn
from fluid.dygraph.base import (
    disable_dygraph,
    disable_imperative,
    enable_dygraph,
    enable_imperative,
    enabled,
    guard,
    no_grad,
    to_variable,
)
from fluid.dygraph.container import LayerList, ParameterList, Sequential
from fluid.dygraph.layers import Layer
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

__all__ = [
    "BCELoss", "BatchNorm", "BilinearTensorProduct", "Conv2D", "Conv2DTranspose", "Conv3D",
    "Conv3DTranspose", "Dropout", "Embedding", "GRUUnit", "GroupNorm", "InstanceNorm", "L1Loss",
    "Layer", "LayerList", "LayerNorm", "Linear", "MSELoss", "NCE", "NLLLoss", "PRelu",
    "ParameterList", "Pool2D", "Sequential", "SpectralNorm", "TreeConv", "base", "container",
    "disable_dygraph", "disable_imperative", "enable_dygraph", "enable_imperative", "enabled",
    "guard", "layer_object_helper", "layers", "nn", "no_grad", "to_variable",
]  # fmt: skip

__getattr__ = not_yet("fluid.dygraph", globals())
