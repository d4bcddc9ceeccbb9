"""`fluid.lod_tensor`: making LoDTensors, under the names users know."""

from runtime.tensor import LoDTensor, create_lod_tensor, create_random_int_lodtensor

__all__ = ["LoDTensor", "create_lod_tensor", "create_random_int_lodtensor"]
