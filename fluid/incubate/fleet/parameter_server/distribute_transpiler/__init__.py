"""The fleet of parameter servers."""

from fleet.algorithm import DistributedOptimizer, Fleet, Mode
from fleet.parameter_server import DistributedTranspiler, TranspilerOptimizer, fleet
from fluid.incubate.fleet.parameter_server.distribute_transpiler import distributed_strategy
from fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import *  # noqa: F403

__all__ = [
    "DistributedOptimizer",
    "DistributedTranspiler",
    "Fleet",
    "Mode",
    "TranspilerOptimizer",
    "fleet",
]
__all__ += distributed_strategy.__all__
