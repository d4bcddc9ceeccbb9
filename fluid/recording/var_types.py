"""What a variable can hold, by the numbers that saved files use.

`VarDesc.VarType.FP32 == 5` (fluid_spec G.3). Users find it as `fluid.core.VarDesc`.
"""

from __future__ import annotations

from compiler.ir.program import VarKind
from compiler.ir.types import DType, VarTypeId

__all__ = ["VarDesc", "kind_of", "var_type"]


class VarDesc:
    """Holds `VarType`, where the reference keeps it."""

    VarType = VarTypeId


def var_type(dtype: DType) -> VarTypeId:
    """The number an element type has in fluid.

    >>> var_type(DType.INT64)
    VarType.INT64
    """
    return VarTypeId(dtype.code)


def kind_of(type: int) -> VarKind:
    """What a variable of this `VarType` holds; ValueError where no variable can be of that type.

    >>> kind_of(VarDesc.VarType.LOD_TENSOR).name
    'TENSOR'
    """
    return VarKind(VarTypeId(type).name)
