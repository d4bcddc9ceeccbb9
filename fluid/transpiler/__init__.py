"""Program rewrites: for inference, for memory reuse, for distributed training."""

from fluid.compat.missing import not_yet
from fluid.transpiler import details
from fluid.transpiler.distribute_transpiler import DistributeTranspiler, DistributeTranspilerConfig
from fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler
from fluid.transpiler.inference_transpiler import InferenceTranspiler
from fluid.transpiler.memory_optimization_transpiler import memory_optimize, release_memory
from fluid.transpiler.ps_dispatcher import HashName, RoundRobin

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "GeoSgdTranspiler",
    "HashName",
    "InferenceTranspiler",
    "RoundRobin",
    "details",
    "memory_optimize",
    "release_memory",
]

__getattr__ = not_yet(__name__, globals())
