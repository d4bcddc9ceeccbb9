"""The few names of Paddle's native module that programs use: data types, and the error of a run.

`fluid.core.VarDesc.VarType.FP32 == 5`: the numbers are those of saved files (fluid_spec G.3).
"""

from __future__ import annotations

from compiler.errors import CompileError
from compiler.ir.program import VarKind
from compiler.ir.proto_schema import VarTypeId
from compiler.ir.types import DType

__all__ = ["EnforceNotMet", "VarDesc", "kind_of", "var_type"]


EnforceNotMet = CompileError
"""What the reference raises where a program can not be run as it stands; here, our own errors."""


class VarDesc:
    """Holds `VarType`, where the reference keeps it."""

    VarType = VarTypeId


def var_type(dtype: DType) -> VarTypeId:
    """The number an element type has in fluid.

    >>> var_type(DType.INT64)
    <VarTypeId.INT64: 3>
    """
    return VarTypeId(dtype.code)


def kind_of(type: int) -> VarKind:
    """What a variable of this `VarType` holds; ValueError where no variable can be of that type.

    >>> kind_of(VarDesc.VarType.LOD_TENSOR).name
    'TENSOR'
    """
    return VarKind(VarTypeId(type).name)
