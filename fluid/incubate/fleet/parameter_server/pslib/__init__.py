"""The fleet with PSLIB's servers, which are closed source: what needs them raises."""

from fleet.algorithm import DistributedOptimizer, Fleet, Mode
from fleet.pslib import DownpourOptimizer, PSLib, fleet, fleet_embedding
from fleet.roles.mpi import MPISymetricRoleMaker

__all__ = [
    "DistributedOptimizer",
    "DownpourOptimizer",
    "Fleet",
    "MPISymetricRoleMaker",
    "Mode",
    "PSLib",
    "fleet",
    "fleet_embedding",
]
