"""A machine for the PTX that Triton emits, in NumPy: kernels run, checked, without a GPU."""

from __future__ import annotations

from tools.ptx.launch import execute
from tools.ptx.memory import Memory

__all__ = ["Memory", "execute"]
