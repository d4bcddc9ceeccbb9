"""All layer objects, under the module name of release 1.8.5."""

from fluid.dygraph.convolutions import Conv2D, Conv2DTranspose, Conv3D, Conv3DTranspose, Pool2D
from fluid.dygraph.dense import (
    NCE,
    BilinearTensorProduct,
    Dropout,
    Embedding,
    GRUUnit,
    Linear,
    PRelu,
    TreeConv,
)
from fluid.dygraph.losses import BCELoss, L1Loss, MSELoss, NLLLoss
from fluid.dygraph.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, SpectralNorm
from fluid.dygraph.sequences import RowConv, SequenceConv

__all__ = [
    "BCELoss", "BatchNorm", "BilinearTensorProduct", "Conv2D", "Conv2DTranspose", "Conv3D",
    "Conv3DTranspose", "Dropout", "Embedding", "GRUUnit", "GroupNorm", "InstanceNorm", "L1Loss",
    "LayerNorm", "Linear", "MSELoss", "NCE", "NLLLoss", "PRelu", "Pool2D", "RowConv",
    "SequenceConv", "SpectralNorm", "TreeConv",
]  # fmt: skip
