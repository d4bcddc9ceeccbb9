"""`paddle.incubate.hapi` of release 1.8.5: batches of one process among several, image changes."""

from fluid.incubate.hapi import distributed, vision

__all__ = ["distributed", "vision"]
