"""What scripts of release 1.8 draw with and cut images by: `plot` and `image_util`."""

from . import plot
from .plot import Ploter

__all__ = ["Ploter", "plot"]
