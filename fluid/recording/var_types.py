"""The types of variables, with the numbers of saved files.

`VarDesc.VarType.FP32 == 5`, as in `framework.proto`. Public as `fluid.core.VarDesc`.
"""

from __future__ import annotations

from compiler.ir.program import VarKind
from compiler.ir.types import DType, VarTypeId

__all__ = ["VarDesc", "kind_of", "var_type"]


class VarDesc:
    """Namespace of `VarType`, as in the reference."""

    VarType = VarTypeId


def var_type(dtype: DType) -> VarTypeId:
    """The `VarType` of a dtype.

    >>> var_type(DType.INT64)
    VarType.INT64
    """
    return _VAR_TYPES[dtype]


_VAR_TYPES = {dtype: VarTypeId(dtype.code) for dtype in DType if dtype is not DType.TOKEN}


def kind_of(type: int) -> VarKind:
    """The kind of variable for a `VarType`; raises ValueError if no variable can have the type.

    >>> kind_of(VarDesc.VarType.LOD_TENSOR).name
    'TENSOR'
    """
    return VarKind(VarTypeId(type).name)
