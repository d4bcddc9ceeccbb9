"""A barrier of workers that leaves a file for each."""

from fleet.fleet_util import check_all_trainers_ready

__all__ = ["check_all_trainers_ready"]
