"""Which blocks of which variables are on which parameter servers."""

from __future__ import annotations

from fluid.distributed.placement import VarDistributed, VarsDistributed, VarStruct

__all__ = ["VarDistributed", "VarStruct", "VarsDistributed"]
