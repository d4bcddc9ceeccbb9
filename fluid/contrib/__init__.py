"""Contributed parts of fluid 1.8.5 under the names they have there; mixed precision so far."""

from fluid.contrib import mixed_precision
from fluid.contrib.mixed_precision import AutoMixedPrecisionLists, decorate
from fluid.missing import not_yet

__all__ = ["AutoMixedPrecisionLists", "decorate", "mixed_precision"]

__getattr__ = not_yet(__name__, globals())
