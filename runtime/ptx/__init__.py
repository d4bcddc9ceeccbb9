"""A machine for the PTX that Triton emits, in NumPy: kernels run, checked, without a GPU."""

from __future__ import annotations

from runtime.ptx.launch import execute
from runtime.ptx.memory import Memory

__all__ = ["Memory", "execute"]
