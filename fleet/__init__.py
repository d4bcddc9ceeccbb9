"""Who takes part in a distributed run, by which strategy, and when.

`roles` say who a process is, `parameter_server` and `collective` are the two fleets, `launch`
starts processes, `few_shot` samples image data, `openks` has the names of seed 003. Those names can
be imported from here, each loaded from its file at the first use. Nothing here moves a tensor.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from compiler.errors import did_you_mean

FILES = {
    "fleet.openks": (
        "BaseDistributedAlgorithm BaseDistributedOptimizer CPUDistributedAlgorithm "
        "GPUDistributedAlgorithm GeneralDistributedOptimizer HeterogeneousDistributedOptimizer "
        "KSDistributedFactory"
    ),
    "fleet.openks_strategies": (
        "ASyncModelConfig CPUStrategy CollectiveMode GPUStrategy GeoSGDModelConfig GradAllreduce "
        "HalfSyncModelConfig HierarchicalAllreduce LocalSGD NCCL2Mode NumThreadsConfig "
        "SyncModeConfig TablesOnServers"
    ),
    "fleet.roles.base": "Role RoleMakerBase",
    "fleet.roles.cloud": "PaddleCloudRoleMaker",
    "fleet.roles.general": "GeneralRoleMaker",
    "fleet.roles.mpi": "MPISymetricRoleMaker",
    "fleet.roles.user_defined": "UserDefinedCollectiveRoleMaker UserDefinedRoleMaker",
    "fleet.algorithm": "Mode",
    "fleet.few_shot.classes": "Open_KS_Character Open_KS_ImageNet",
    "fleet.few_shot.datasets": "Open_KS_Read_Character Open_KS_read",
}
"""Where the public names are."""
HOMES = {name: file for file, names in FILES.items() for name in names.split()}

__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    """A public name, loaded at its first use. Raises AttributeError for another."""
    if name not in HOMES:
        hint = did_you_mean(name, list(HOMES)) if name[:1] != "_" else ""
        raise AttributeError(f"fleet has no {name!r}; {hint}".rstrip("; "))
    found = globals()[name] = getattr(import_module(HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
