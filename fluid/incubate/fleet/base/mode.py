"""How a fleet trains."""

from fleet.algorithm import Mode

__all__ = ["Mode"]
