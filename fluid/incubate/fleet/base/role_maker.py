"""Who a process is in a distributed job."""

from fleet.roles.base import Role, RoleMakerBase
from fleet.roles.cloud import PaddleCloudRoleMaker
from fleet.roles.general import GeneralRoleMaker
from fleet.roles.mpi import MPISymetricRoleMaker
from fleet.roles.user_defined import UserDefinedCollectiveRoleMaker, UserDefinedRoleMaker

__all__ = [
    "GeneralRoleMaker",
    "MPISymetricRoleMaker",
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]
