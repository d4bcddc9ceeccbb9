"""Tensors from DLPack capsules of other libraries."""

from __future__ import annotations

import numpy as np

from compiler.support.dataclass import dataclass
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["from_dlpack"]

_CPU = 1
"""The number of host memory in DLPack."""


@dataclass(frozen=True)
class _Exporter:
    """What NumPy takes in place of a bare capsule."""

    capsule: object

    def __dlpack__(self, **_: object) -> object:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0


def from_dlpack(dlpack: object) -> LoDTensor:
    """Return a tensor with a copy of the elements of a capsule, which must be in host memory.

    A capsule is used up. Raises TypeError for anything else.
    """
    if type(dlpack).__name__ != "PyCapsule":
        raise TypeError(f"from_dlpack takes a DLPack capsule, not {type(dlpack).__name__}")
    return LoDTensor(np.array(np.from_dlpack(_Exporter(dlpack))))  # pyright: ignore[reportArgumentType]
