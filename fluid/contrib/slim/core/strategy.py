"""`Strategy`, where release 1.8.5 has it."""

from fluid.contrib.slim.strategies.strategy import Strategy

__all__ = ["Strategy"]
