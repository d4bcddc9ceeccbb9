"""Loops from the kernel IR: any `KernelBody` as LLVM IR for a CPU.

Read `lower` first, then `passes` and `units` (lanes and units of work), `body` and `forms`
(indices), `scopes`, `values` and `memory` (expressions), `loops` and `reductions`.
"""

from compiler.codegen.native.loops.body import NotLowered
from compiler.codegen.native.loops.lower import LoweredKernel, lower

__all__ = ["LoweredKernel", "NotLowered", "lower"]
