"""Who a process is in a distributed job."""

from fleet.roles.base import Role, RoleMakerBase
from fleet.roles.cloud import PaddleCloudRoleMaker
from fleet.roles.general import GeneralRoleMaker
from fleet.roles.meeting import MockBarrier
from fleet.roles.mpi import MPISymetricRoleMaker
from fleet.roles.user_defined import UserDefinedCollectiveRoleMaker, UserDefinedRoleMaker

__all__ = [
    "GeneralRoleMaker",
    "MPIRoleMaker",
    "MPISymetricRoleMaker",
    "MockBarrier",
    "PaddleCloudRoleMaker",
    "Role",
    "RoleMakerBase",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]

MPIRoleMaker = MPISymetricRoleMaker
"""The base of MPISymetricRoleMaker in release 1.8."""
