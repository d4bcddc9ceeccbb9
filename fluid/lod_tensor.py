"""`fluid.lod_tensor`: making LoDTensors, and lists of them, under the names users know."""

from __future__ import annotations

from fluid.arguments import typed
from runtime import tensor
from runtime.tensor import LoDTensor

__all__ = ["LoDTensor", "LoDTensorArray", "create_lod_tensor", "create_random_int_lodtensor"]


create_lod_tensor = typed(tensor.create_lod_tensor)
create_random_int_lodtensor = typed(tensor.create_random_int_lodtensor)


class LoDTensorArray(list[LoDTensor]):
    """LoDTensors in order, as a `LOD_TENSOR_ARRAY` variable holds them.

    >>> steps = LoDTensorArray()
    >>> steps.append(LoDTensor())
    >>> len(steps)
    1
    """

    def append(self, tensor: LoDTensor) -> None:
        """Add a tensor at the end; TypeError for anything else."""
        if not isinstance(tensor, LoDTensor):
            raise TypeError(f"a LoDTensorArray holds LoDTensors, not {type(tensor).__name__}")
        super().append(tensor)
