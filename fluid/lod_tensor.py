"""`fluid.lod_tensor`: public functions that create LoDTensors and lists of them."""

from __future__ import annotations

from fluid.recording.arguments import typed
from runtime.tensors import lod_tensor as tensor
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope_values import LoDTensorArray

__all__ = ["LoDTensor", "LoDTensorArray", "create_lod_tensor", "create_random_int_lodtensor"]


create_lod_tensor = typed(tensor.create_lod_tensor)
create_random_int_lodtensor = typed(tensor.create_random_int_lodtensor)
for _function in (create_lod_tensor, create_random_int_lodtensor):
    _function.__module__ = __name__  # where pickle finds the checked one
