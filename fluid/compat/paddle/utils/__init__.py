"""What scripts of release 1.8 draw with: `plot`."""

from . import plot

__all__ = ["plot"]
