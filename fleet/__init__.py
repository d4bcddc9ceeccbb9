"""Distributed training: the role of each process, the strategy, and process launch.

`roles` determine the role of a process, `parameter_server` and `collective` are the two fleets,
`launch` starts processes, `openks` has the names, strategies and data of OpenKS. All names can be
imported from here, each loaded from its file on first use. No tensor is moved here.
"""

from __future__ import annotations

from typing import NoReturn

from compiler.errors import did_you_mean
from compiler.support.lazy_loading import lazy_names

__all__: list[str] = []


def _missing(name: str) -> NoReturn:
    hint = did_you_mean(name, __all__) if name[:1] != "_" else ""
    raise AttributeError(f"fleet has no {name!r}; {hint}".rstrip("; "))


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fleet.openks.algorithms": (
            "BaseDistributedAlgorithm BaseDistributedOptimizer CPUDistributedAlgorithm "
            "GPUDistributedAlgorithm GeneralDistributedOptimizer HeterogeneousDistributedOptimizer "
            "KSDistributedFactory"
        ),
        "fleet.openks.strategies": (
            "ASyncModelConfig CPUStrategy CollectiveMode GPUStrategy GeoSGDModelConfig "
            "GradAllreduce HalfSyncModelConfig HierarchicalAllreduce LocalSGD NCCL2Mode "
            "NumThreadsConfig SyncModeConfig TablesOnServers"
        ),
        "fleet.roles.base": "Role RoleMakerBase",
        "fleet.roles.cloud": "PaddleCloudRoleMaker",
        "fleet.roles.general": "GeneralRoleMaker",
        "fleet.roles.mpi": "MPISymetricRoleMaker",
        "fleet.roles.user_defined": "UserDefinedCollectiveRoleMaker UserDefinedRoleMaker",
        "fleet.algorithm": "Mode",
        "fleet.openks.few_shot.classes": "Open_KS_Character Open_KS_ImageNet",
        "fleet.openks.few_shot.datasets": "Open_KS_Read_Character Open_KS_read",
    },
    otherwise=_missing,
    exported="*",
)
