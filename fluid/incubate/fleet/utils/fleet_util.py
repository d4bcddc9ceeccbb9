"""Messages of one worker, and metrics over all workers."""

from fleet.fleet_util import FleetUtil

__all__ = ["FleetUtil"]
