"""What strategies of a compression derive from, and what they read and change."""

from fluid.contrib.slim.strategies.context import Context
from fluid.contrib.slim.strategies.strategy import Strategy

__all__ = ["Context", "Strategy"]
