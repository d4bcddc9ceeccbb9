"""`fluid.lod_tensor`: making LoDTensors, and lists of them, under the names users know."""

from __future__ import annotations

from fluid.arguments import typed
from runtime import tensor
from runtime.held_values import LoDTensorArray
from runtime.tensor import LoDTensor

__all__ = ["LoDTensor", "LoDTensorArray", "create_lod_tensor", "create_random_int_lodtensor"]


create_lod_tensor = typed(tensor.create_lod_tensor)
create_random_int_lodtensor = typed(tensor.create_random_int_lodtensor)
